import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { isPatternTooComplex } from '../storage/database-errors.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf, splitTableScan } from '../storage/query/counts.ts'
import { inGroups, inScope, inSites } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { DeviceRow } from '../storage/schema/tables.ts'
import { isAmong } from '../storage/search/ranking.ts'
import { deviceMatches } from './compile.ts'
import type { ConditionGroup } from './conditions/contract.ts'
import type { FilterPreview, PreviewedDevice } from './contract.ts'

/** With more matches than this, walking an index finds the first page quickly. */
const smallResult = 500

const deviceRows = rowsOf<DeviceRow>()()

/**
 * The matching devices that a caller can see, by hostname, and their total. @throws invalid_request where Postgres
 * refuses a pattern as too complex
 */
export async function previewFilter(
  db: Db,
  scope: Scope,
  conditions: ConditionGroup,
  { limit, now }: { limit: number; now: Instant },
): Promise<FilterPreview> {
  const found = db
    .selectFrom('devices')
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
    .where(deviceMatches(conditions, { now }))
  const pageOf = (matching: typeof found) =>
    matching
      .select(['id', 'hostname', 'display_name', 'os_type', 'status', 'last_seen_at'])
      .orderBy('hostname')
      .orderBy('id')
      .limit(limit)
      .execute()
  // A scan finds all of a few matches; with many matches the first ones are found quickly in index order.
  const someOf = async (half: typeof found) => {
    const some = await half
      .select('id')
      .limit(smallResult + 1)
      .execute()
    const isAll = some.length <= smallResult
    return { isAll, ids: some.map(({ id }) => id), total: isAll ? some.length : await countRowsOf(half) }
  }
  const halves = await Promise.all(splitTableScan(db, found, 'devices').map(someOf)).catch(throwPatternError)
  const totalCount = halves.reduce((sum, { total }) => sum + total, 0)
  const ids = halves.flatMap((half) => half.ids)
  const rows = await pageOf(
    halves.every(({ isAll }) => isAll) ? db.selectFrom('devices').where(isAmong(ids)) : found,
  )
  const devices = rows.map((row) => deviceRows.read(row) as PreviewedDevice)
  return { data: { totalCount, devices, evaluatedAt: now } }
}

function throwPatternError(error: unknown): never {
  if (!isPatternTooComplex(error)) throw error
  throw invalid([{ path: 'conditions', message: 'a pattern is too complex for this database' }])
}
