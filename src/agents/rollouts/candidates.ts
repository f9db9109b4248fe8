import type { Instant } from '../../core/time.ts'
import { deviceMatches } from '../../filters/compile.ts'
import type { ConditionGroup } from '../../filters/contract.ts'
import type { Db } from '../../storage/open.ts'
import { equalsText } from '../../storage/query/expressions.ts'
import { tenantIsUsable } from '../../tenancy/access.ts'
import { isManualPolicy } from '../upgrades/rules.ts'
import { isNewer } from '../versions/semver.ts'

/* Candidate devices of a version, across all tenants: read page by page, without blocking writers. */

/**
 * Devices in use, with a build of the version for their platform, on another version that is not a developer build,
 * and with auto-update allowed by users and agents. SQL cannot compare versions: callers filter out devices with a
 * newer one.
 */
const candidates = (db: Db, version: string) =>
  db
    .selectFrom('devices')
    .innerJoin('organizations as o', 'o.id', 'devices.org_id')
    .innerJoin('partners as p', 'p.id', 'o.partner_id')
    .innerJoin('agent_builds as b', (join) =>
      join
        .onRef('b.platform', '=', 'devices.os_type')
        .onRef('b.architecture', '=', 'devices.architecture')
        .on(equalsText('b.component', 'agent')),
    )
    .where('b.version', '=', version)
    .where('devices.agent_version', '!=', version)
    .where(({ or, eb }) =>
      // Excludes versions that begin with dev-, by byte order on both databases.
      or([eb('devices.agent_version', '<', 'dev-'), eb('devices.agent_version', '>=', 'dev.')]),
    )
    .where('devices.status', 'not in', ['decommissioned', 'quarantined'])
    .where('devices.auto_update', '=', 1)
    .where(({ or, eb }) =>
      or([
        eb('devices.auto_update_acknowledged', 'is', null),
        eb('devices.auto_update_acknowledged', '=', 1),
      ]),
    )
    .where(tenantIsUsable)

export type Candidate = { id: string; orgId: string; fromVersion: string; isHeld: boolean }

/** Rows of one reply: data from a reader thread is copied on the event loop. */
const pageSize = 2000

/** Ordered by id, after the given one; without devices of organizations with a manual update policy. */
export async function listCandidates(
  db: Db,
  version: string,
  after: string,
  manual: ReadonlySet<string>,
): Promise<{ found: Candidate[]; last: string | undefined }> {
  const rows = await candidates(db, version)
    .select(['devices.id', 'devices.org_id', 'devices.agent_version'])
    .select((eb) =>
      // An earlier rollout brought it to its version, and no promotion has changed that since.
      eb
        .exists(
          eb
            .selectFrom('agent_rollout_devices as was')
            .innerJoin('agent_rollouts as r', 'r.id', 'was.rollout_id')
            .leftJoin('agent_builds as now', (join) =>
              join
                .onRef('now.platform', '=', 'devices.os_type')
                .onRef('now.architecture', '=', 'devices.architecture')
                .on(equalsText('now.component', 'agent'))
                .on('now.promoted_at', 'is not', null),
            )
            .select((one) => one.lit(1).as('found'))
            .whereRef('was.device_id', '=', 'devices.id')
            .whereRef('r.version', '=', 'devices.agent_version')
            .where('r.status', 'in', ['aborted', 'completed'])
            .where('was.state', '!=', 'waiting')
            .where(({ or, eb: one }) =>
              or([one('now.promoted_at', 'is', null), one('now.promoted_at', '<', one.ref('r.ended_at'))]),
            ),
        )
        .as('is_held'),
    )
    .where('devices.id', '>', after)
    .orderBy('devices.id')
    .limit(pageSize)
    .execute()
  const found = rows
    .filter(({ org_id, agent_version }) => !manual.has(org_id) && isNewer(version, agent_version))
    .map(({ id, org_id: orgId, agent_version: fromVersion, is_held }) => ({
      id,
      orgId,
      fromVersion,
      isHeld: Boolean(is_held),
    }))
  return { found, last: rows.length < pageSize ? undefined : rows.at(-1)!.id }
}

/** Organizations with a manual update policy, whose agents are never offered a version. */
export async function listManualOrgs(db: Db): Promise<Set<string>> {
  const rows = await db
    .selectFrom('organizations')
    .select(['id', 'settings'])
    .where('settings', 'like', '%agentUpdatePolicy%')
    .execute()
  return new Set(rows.filter(({ settings }) => isManualPolicy(JSON.parse(settings))).map(({ id }) => id))
}

/** Candidates that a filter matches, ordered by id, after the given one. */
export async function listMatching(
  db: Db,
  version: string,
  conditions: ConditionGroup,
  { after, now }: { after: string; now: Instant },
): Promise<{ found: string[]; last: string | undefined }> {
  const rows = await candidates(db, version)
    .select(['devices.id', 'devices.agent_version'])
    .where(deviceMatches(conditions, { now }))
    .where('devices.id', '>', after)
    .orderBy('devices.id')
    .limit(pageSize)
    .execute()
  const found = rows.filter(({ agent_version }) => isNewer(version, agent_version)).map(({ id }) => id)
  return { found, last: rows.length < pageSize ? undefined : rows.at(-1)!.id }
}

/** Number of candidates: all, or those that a filter matches. */
export async function countCandidates(
  db: Db,
  version: string,
  manual: ReadonlySet<string>,
  { conditions, now }: { conditions?: ConditionGroup; now: Instant },
): Promise<number> {
  const found = candidates(db, version)
    .$if(manual.size > 0, (q) => q.where('devices.org_id', 'not in', [...manual]))
    .$if(conditions !== undefined, (q) => q.where(deviceMatches(conditions!, { now })))
  const byVersion = await found
    .select((eb) => ['devices.agent_version', eb.fn.countAll<number>().as('count')])
    .groupBy('devices.agent_version')
    .execute()
  return byVersion
    .filter(({ agent_version }) => isNewer(version, agent_version))
    .reduce((sum, { count }) => sum + Number(count), 0)
}

/** The agent builds of a version, by platform. */
export function findBuilds(
  db: Db,
  version: string,
): Promise<{ platform: string; architecture: string; promotedAt: Instant | null }[]> {
  return db
    .selectFrom('agent_builds')
    .select(['platform', 'architecture', 'promoted_at as promotedAt'])
    .where('component', '=', 'agent')
    .where('version', '=', version)
    .execute()
}
