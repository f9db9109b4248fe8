import { Problem } from '../../core/errors.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { readPage } from '../../storage/query/pages.ts'
import type { AgentBuildRow, AgentReleaseRow } from '../../storage/schema/agent-tables.ts'
import { lockTable } from '../../storage/table-lock.ts'
import type { AgentRelease } from './contract.ts'
import type { Build } from './manifest.ts'
import { type ReleaseRegistration, toAgentRelease } from './rules.ts'

/* Releases belong to no tenant: all tenants use the same agent. */

/** Serializes registration, promotion and removal. */
export const lockReleases = (db: Db): Promise<void> => lockTable(db, 'agent_releases')

/** Newest first. */
export async function listReleases(db: Db, page: PageQuery): Promise<Page<AgentRelease>> {
  const found = db.selectFrom('agent_releases')
  const newestFirst = (q: typeof found) =>
    q.selectAll().orderBy('created_at', 'desc').orderBy('version', 'desc')
  const { data: releases, pagination } = await readPage(found, page, newestFirst, (row) => row)
  const versions = releases.map(({ version }) => version)
  const builds =
    versions.length === 0
      ? []
      : await db.selectFrom('agent_builds').selectAll().where('version', 'in', versions).execute()
  const data = releases.map((one) =>
    toAgentRelease(
      one,
      builds.filter(({ version }) => version === one.version),
    ),
  )
  return { data, pagination }
}

/** @throws not_found */
export async function getRelease(db: Db, version: string): Promise<AgentReleaseRow> {
  const row = await findRelease(db, version)
  if (!row) throw new Problem('not_found', 'Version not found')
  return row
}

export const findRelease = (db: Db, version: string): Promise<AgentReleaseRow | undefined> =>
  db.selectFrom('agent_releases').selectAll().where('version', '=', version).executeTakeFirst()

export const buildsOf = (db: Db, version: string): Promise<AgentBuildRow[]> =>
  db.selectFrom('agent_builds').selectAll().where('version', '=', version).execute()

const buildsFor = (db: Db, { component, platform, architecture }: Build) =>
  db
    .selectFrom('agent_builds')
    .selectAll()
    .where('component', '=', component)
    .where('platform', '=', platform)
    .where('architecture', '=', architecture)

/** The build of a version for a platform; without a version the one that is offered. */
export const findBuild = (
  db: Db,
  kind: Build,
  version: string | undefined,
): Promise<AgentBuildRow | undefined> =>
  version === undefined
    ? buildsFor(db, kind).where('promoted_at', 'is not', null).executeTakeFirst()
    : buildsFor(db, kind).where('version', '=', version).executeTakeFirst()

/** The manifests of all releases. */
export const listManifests = (db: Db): Promise<Pick<AgentReleaseRow, 'version' | 'manifest'>[]> =>
  db.selectFrom('agent_releases').select(['version', 'manifest']).execute()

export const listPromoted = (db: Db): Promise<AgentBuildRow[]> =>
  db.selectFrom('agent_builds').selectAll().where('promoted_at', 'is not', null).execute()

export async function insertRelease(db: Db, { release }: ReleaseRegistration, now: Instant): Promise<void> {
  const times = { created_at: now, updated_at: now }
  await db
    .insertInto('agent_releases')
    .values({ ...release, ...times })
    .execute()
}

/** Updates the columns that may change while the manifest stays the same. */
export async function changeRelease(db: Db, { release }: ReleaseRegistration, now: Instant): Promise<void> {
  const { version, manifest_signature, signing_key_id, notes, tag } = release
  await db
    .updateTable('agent_releases')
    .set({ manifest_signature, signing_key_id, notes, tag, updated_at: now })
    .where('version', '=', version)
    .execute()
}

/** Existing builds keep their promotion; their address may change. */
export async function saveBuilds(db: Db, { builds }: ReleaseRegistration): Promise<void> {
  for (const { label: _, ...build } of builds) {
    await db
      .insertInto('agent_builds')
      .values({ ...build, promoted_at: null, rollback_at: null })
      .onConflict((c) =>
        c.columns(['version', 'component', 'platform', 'architecture']).doUpdateSet({ url: build.url }),
      )
      .execute()
  }
}

/** Sets since when the builds are offered; null: not offered. `back`: also to machines with a newer version. */
export async function setPromoted(
  db: Db,
  builds: readonly AgentBuildRow[],
  at: Instant | null,
  { back = false } = {},
): Promise<void> {
  for (const { version, ...kind } of builds) {
    await db
      .updateTable('agent_builds')
      .set({ promoted_at: at, rollback_at: back ? at : null })
      .where('version', '=', version)
      .where('component', '=', kind.component)
      .where('platform', '=', kind.platform)
      .where('architecture', '=', kind.architecture)
      .execute()
  }
}

/** False where it is gone already. */
export async function removeRelease(db: Db, version: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('agent_releases')
    .where('version', '=', version)
    .executeTakeFirstOrThrow()
  return numDeletedRows > 0n
}

/** The rollout that determines what its devices are offered. */
export const findCurrentRollout = (
  db: Db,
): Promise<{ id: string; version: string; status: string } | undefined> =>
  db
    .selectFrom('agent_rollouts')
    .select(['id', 'version', 'status'])
    .where('is_current', '=', 1)
    .executeTakeFirst()

/** The rollout is no longer current. */
export async function unsetCurrentRollout(db: Db, rolloutId: string, now: Instant): Promise<void> {
  await db
    .updateTable('agent_rollouts')
    .set({ is_current: 0, updated_at: now })
    .where('id', '=', rolloutId)
    .execute()
}
