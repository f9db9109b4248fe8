import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import {
  type CursorPage,
  type CursorPageQuery,
  fetchLimit,
  keyAfter,
  offsetOf,
  toCursorPage,
  totalFrom,
} from '../core/page.ts'
import { isNarrowed, ofOne, organizationScope, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { after, idStartsWith } from '../storage/query/expressions.ts'
import { preparedInScope } from '../storage/query/prepared-in-scope.ts'
import { inGroups, inScope, inSites } from '../storage/query/scope.ts'
import { foldedContains } from '../storage/search/key-matching.ts'
import type { Device } from './contract.ts'
import { columns, customFields, toDevice } from './rows.ts'
import { checkDeviceCap } from './rules.ts'

/** The columns of a device in replies. */
export const deviceSelection = [...columns, customFields.as('custom_fields')] as const

export const devicesIn = (db: Db, scope: Scope) =>
  db
    .selectFrom('devices')
    .where(inScope(scope, 'devices.org_id'))
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))

export type DeviceFilter = {
  orgId?: string | undefined
  siteId?: string | undefined
  groupId?: string | undefined
  status?: string | undefined
  osType?: string | undefined
  role?: string | undefined
  tag?: string | undefined
  search?: string | undefined
  idPrefix?: string | undefined
}

function filtered(db: Db, scope: Scope, filter: DeviceFilter) {
  const { orgId, siteId, groupId, status, osType, role, tag, search, idPrefix } = filter
  const needle = fold(search ?? '')
  return devicesIn(db, scope)
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(siteId !== undefined, (q) => q.where('site_id', '=', siteId!))
    .$if(groupId !== undefined, (q) => q.where(inGroups(groupAlone(scope, groupId!), 'devices.id')))
    .$if(status !== undefined, (q) => q.where('status', '=', status!))
    .$if(osType !== undefined, (q) => q.where('os_type', '=', osType!))
    .$if(role !== undefined, (q) => q.where('device_role', '=', role!))
    .$if(tag !== undefined, (q) =>
      q.where('devices.id', 'in', (eb) =>
        eb.selectFrom('device_tags').select('device_id').where('tag', '=', tag!),
      ),
    )
    .$if(idPrefix !== undefined, (q) => q.where(idStartsWith('devices.id', idPrefix!)))
    .$if(needle !== '', (q) =>
      q.where((eb) =>
        eb.or([foldedContains('hostname_key', needle), foldedContains('display_name_key', needle)]),
      ),
    )
}

/** A caller restricted to groups must not learn which devices are in another group. */
function groupAlone(scope: Scope, groupId: string): Scope {
  const seen = scope.kind !== 'organization' || (scope.groupIds?.includes(groupId) ?? true)
  return { kind: 'organization', orgId: '', siteIds: null, groupIds: seen ? [groupId] : [] }
}

type Filtered = ReturnType<typeof devicesIn>

/** An index alone determines which devices are on the page; only those rows are read. */
const pageOf = (db: Db, found: Filtered) =>
  db
    .selectFrom('devices')
    .select(deviceSelection)
    .where('devices.id', 'in', found.select('devices.id').orderBy('hostname').orderBy('devices.id'))
    .orderBy('hostname')
    .orderBy('devices.id')

/** The same without the subquery for a single organization: an index has its devices in order. */
const plainPageOf = (db: Db, scope: Scope, found: Filtered) =>
  scope.kind === 'organization' && !isNarrowed(scope)
    ? found.select(deviceSelection).orderBy('hostname').orderBy('devices.id')
    : pageOf(db, found)

const order = ['devices.hostname', 'devices.id'] as const

const firstPage = preparedInScope((db, scope, p: { limit: number; offset: number }) =>
  plainPageOf(db, scope, devicesIn(db, scope).limit(p.limit).offset(p.offset)),
)
const nextPage = preparedInScope((db, scope, p: { limit: number; hostname: string; id: string }) =>
  plainPageOf(
    db,
    scope,
    devicesIn(db, scope)
      .where(after(order, [p.hostname, p.id]))
      .limit(p.limit),
  ),
)
const howMany = preparedInScope((db, scope) =>
  devicesIn(db, scope).select((eb) => eb.fn.countAll<number>().as('total')),
)

/** Devices that are counted, or skipped, within a few milliseconds: SQLite does so in the thread of the event loop. */
export const countedAtOnce = 20_000

const howManyAtOnce = preparedInScope((db, scope) =>
  db
    .selectFrom(
      devicesIn(db, scope)
        .select('devices.id')
        .limit(countedAtOnce + 1)
        .as('first'),
    )
    .select((eb) => eb.fn.countAll<number>().as('total')),
)

/** Ordered by hostname. `readQuery` runs what takes long: the count of a large fleet. */
export async function listDevices(
  db: Db,
  scope: Scope,
  { page, limit, cursor, ...filter }: CursorPageQuery & DeviceFilter,
  readQuery: <T>(work: (on: Db) => Promise<T>) => Promise<T> = (work) => work(db),
): Promise<CursorPage<Device>> {
  const query = { page, limit, cursor }
  const key = keyAfter(query, order.length)
  const isPlain = Object.values(filter).every((one) => one === undefined || one === '')
  const asked = fetchLimit(query)
  const offset = offsetOf(query)
  const [hostname = '', id = ''] = (key ?? []).map(String)
  const sought = () => filtered(db, scope, filter).limit(asked)
  const rows = isPlain
    ? await (key
        ? nextPage(db, scope, { limit: asked, hostname, id })
        : firstPage(db, scope, { limit: asked, offset }))
    : await pageOf(db, key ? sought().where(after(order, key)) : sought().offset(offset)).execute()
  const count = async () => {
    const some = filtered(db, scope, filter)
      .select('devices.id')
      .limit(countedAtOnce + 1)
    const total = isPlain
      ? (await howManyAtOnce(db, scope, {}))[0]!.total
      : await countRowsOf(db.selectFrom(some.as('first')))
    if (total <= countedAtOnce) return total
    return readQuery(async (on) =>
      isPlain ? (await howMany(on, scope, {}))[0]!.total : countRowsOf(filtered(on, scope, filter)),
    )
  }
  const total = key ? undefined : (totalFrom(Math.min(rows.length, limit), query) ?? (await count()))
  return toCursorPage(rows.map(toDevice), query, (device) => [device.hostname, device.id], total)
}

const byId = preparedInScope((db, scope, p: { id: string }) =>
  devicesIn(db, ofOne(scope)).select(deviceSelection).where('devices.id', '=', p.id),
)
export const deviceNotFound = () => new Problem('not_found', 'Device not found')

/** @throws not_found, also for a device outside the scope */
export async function getDevice(db: Db, scope: Scope, id: string): Promise<Device> {
  const [row] = await byId(db, scope, { id })
  if (!row) throw deviceNotFound()
  return toDevice(row)
}

/** Devices in a scope, without decommissioned ones. */
export const countDevicesIn = (db: Db, scope: Scope): Promise<number> =>
  countRowsOf(devicesIn(db, scope).where('status', '!=', 'decommissioned'))

/** How many devices there are in each status, and how many of them reported at `since` or later. */
export async function countByStatus(
  db: Db,
  scope: Scope,
  since: Instant,
): Promise<{ status: string; devices: number; reported: number }[]> {
  const rows = await devicesIn(db, scope)
    .select(({ fn, eb }) => [
      'status',
      fn.countAll<number>().as('devices'),
      fn
        .sum<number | string>(eb.case().when('last_seen_at', '>=', since).then(1).else(0).end())
        .as('reported'),
    ])
    .groupBy('status')
    .execute()
  return rows.map((row) => ({ ...row, reported: Number(row.reported) }))
}

type Capped = {
  org: { id: string; partner_id: string; max_devices: number | null }
  partner: { max_devices: number | null }
}

/** Of a locked tenant, so that the caps hold under concurrent changes. @throws device_limit_reached */
export async function checkDeviceCaps(db: Db, { org, partner }: Capped): Promise<void> {
  checkDeviceCap(org.max_devices, await countDevicesIn(db, organizationScope(org.id)))
  const ofPartner = { kind: 'partner', partnerId: org.partner_id, orgs: 'all' } as const
  checkDeviceCap(partner.max_devices, await countDevicesIn(db, ofPartner))
}
