import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { countOf, countOfAll } from '../storage/counts.ts'
import { inGroups, inScope, inSites, isPatternTooComplex } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'
import { rowsOf } from '../storage/rows.ts'
import type { DeviceRow } from '../storage/tables.ts'
import { deviceMatches } from './compile.ts'
import type { ConditionGroup } from './conditions/contract.ts'
import type { FilterPreview, PreviewedDevice } from './contract.ts'

/** Where more match, the first page is soon found by walking an index. */
const few = 500

const deviceRows = rowsOf<DeviceRow>()()

/**
 * The devices that a caller can see and that match, by hostname, and how many there are in all.
 * @throws invalid_request where Postgres gives up on a pattern
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
  const page = ['id', 'hostname', 'display_name', 'os_type', 'status', 'last_seen_at'] as const
  // Of few, one look at the rows finds all of them; of many, the first few in the order of the index are enough.
  const some = await db
    .selectFrom(
      found
        .select(page)
        .limit(few + 1)
        .as('some'),
    )
    .selectAll()
    .select((eb) => eb.fn.countAll<number>().over().as('total'))
    .orderBy('hostname')
    .orderBy('id')
    .limit(limit)
    .execute()
    .catch(refused)
  const isAll = (some[0]?.total ?? 0) <= few
  const [rows, totalCount] = isAll
    ? [some, some[0]?.total ?? 0]
    : await Promise.all([
        found.select(page).orderBy('hostname').orderBy('id').limit(limit).execute(),
        scope.kind === 'system' ? countOfAll(found, 'devices') : countOf(found),
      ]).catch(refused)
  const devices = rows.map((row) => deviceRows.read(row) as PreviewedDevice)
  return { data: { totalCount, devices, evaluatedAt: now } }
}

function refused(error: unknown): never {
  if (!isPatternTooComplex(error)) throw error
  throw invalid([{ path: 'conditions', message: 'a pattern is too complex for this database' }])
}
