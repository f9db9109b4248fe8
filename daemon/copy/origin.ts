import { hash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { migrations } from '../../migrations/index.ts'
import { SetupError } from '../../src/core/errors.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import { assertNoUnfinishedRestore } from '../../src/storage/backup/restore-mark.ts'
import type { SourceSchema } from '../../src/storage/copy/source.ts'
import type { CopyOrigin } from '../../src/storage/copy/target.ts'
import { checksumsOf } from '../../src/storage/migrate.ts'
import { ledgerOf } from '../../src/storage/migration-ledger.ts'
import { version } from '../../src/version.ts'
import { isMoved } from '../backup/contents.ts'

/** @throws SetupError for a database that this version cannot copy */
export async function copyOriginOf(source: SourceSchema): Promise<CopyOrigin> {
  await assertNoUnfinishedRestore(source)
  const applied = await ledgerOf(source)
  if (applied.size === 0) throw new SetupError('This database is empty: there is nothing to copy')
  const checksums = await checksumsOf(migrations)
  for (const [name, { checksum }] of applied) {
    const known = checksums.get(name)
    if (known === checksum) continue
    const what = known === undefined ? 'a newer schema' : 'another schema'
    throw new SetupError(
      `This database has ${what} (${name}) than svc ${version}: copy it with the version that serves it`,
    )
  }
  return {
    identity: identityOf(applied),
    migrations: migrations.filter(({ name }) => applied.has(name)),
    tables: await movedTables(source),
  }
}

/** False once it was migrated, or somebody has changed a table: the chunks do not have what came with that. */
export const isUnchangedSince = async (
  source: SourceSchema,
  { identity, tables }: CopyOrigin,
): Promise<boolean> =>
  identityOf(await ledgerOf(source)) === identity && isDeepStrictEqual(await movedTables(source), tables)

/** When each migration was applied: no two databases share that, and one that is migrated becomes another. */
function identityOf(applied: Awaited<ReturnType<typeof ledgerOf>>): string {
  const times = [...applied].map(([name, { appliedAt }]) => `${name} ${appliedAt}`).sort()
  return hash('sha256', times.join('\n'), 'hex')
}

const movedTables = async (source: SourceSchema): Promise<TableShape[]> =>
  (await source.tables()).filter(({ name }) => isMoved(name))
