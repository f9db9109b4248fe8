import {
  type CursorPage,
  type CursorPageQuery,
  fetchLimit,
  keyAfter,
  offsetOf,
  toCursorPage,
} from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { devicesIn } from '../../devices/store.ts'
import type { Db } from '../../storage/open.ts'
import { type Each, preparedForEach } from '../../storage/query/prepared-for-each.ts'
import type { DeviceEventLogRow } from '../../storage/schema/tables.ts'
import type { DiagnosticLog } from '../diagnostic/contract.ts'
import { toDiagnosticLog } from '../diagnostic/store.ts'
import type { EventLog } from '../events/contract.ts'
import { toEventLog } from '../events/store.ts'
import {
  kindOf,
  type LogHead,
  type LogKind,
  type LogPosition,
  levelsOfKind,
  logKinds,
  maxDevicesOfNewest,
  maxHeadsSince,
  maxSince,
} from './contract.ts'

export type LogFilter = {
  kind?: LogKind | undefined
  level?: string[] | undefined
  component?: string | undefined
  source?: string | undefined
}
export type LogEntries = { diagnostic: DiagnosticLog[]; events: EventLog[] }
export type ReadPosition = LogPosition & { more: boolean }

const tables = { diagnostic: 'agent_logs', events: 'device_event_logs' } as const

/** Devices with logs, by id. */
const devicesWithLogs = (db: Db, scope: Scope, after: string | undefined) =>
  devicesIn(db, scope)
    .where('devices.log_seq', '>', 0)
    .$if(after !== undefined, (q) => q.where('devices.id', '>', after!))
    .select(['devices.id as deviceId', 'devices.hostname', 'devices.log_seq as seq'])
    .orderBy('devices.id')

/**
 * Throws when the read query has taken its time. One about many devices has many statements: without it, each has
 * the time of a whole read query.
 */
type CheckTime = () => void

/** Devices that are looked up together: the statements of other callers get between two pieces. */
const devicesAtOnce = 10

async function inPieces<T>(
  all: readonly T[],
  checkTime: CheckTime,
  work: (piece: T[]) => Promise<void>,
): Promise<void> {
  for (let at = 0; at < all.length; at += devicesAtOnce) {
    checkTime()
    await work(all.slice(at, at + devicesAtOnce))
  }
}

/** By id of the device. A position is read before the entries, so a reader who reads up to it has all of them. */
export async function listLogHeads(
  db: Db,
  scope: Scope,
  asked: CursorPageQuery & { since?: Instant | undefined },
  checkTime: CheckTime,
): Promise<CursorPage<LogHead>> {
  const { since } = asked
  const query = since === undefined ? asked : { ...asked, limit: Math.min(asked.limit, maxHeadsSince) }
  const key = keyAfter(query, 1)
  const rows = await devicesWithLogs(db, scope, key && String(key[0]))
    .limit(fetchLimit(query))
    .offset(key ? 0 : offsetOf(query))
    .execute()
  const page = toCursorPage<LogHead>(rows, query, ({ deviceId }) => [deviceId], undefined)
  if (since === undefined) return page
  const starts = new Map<string, number>()
  await inPieces(page.data, checkTime, async (heads) => {
    const places = heads.map(({ deviceId }) => ({ deviceId, since }))
    for (const kind of logKinds)
      for (const { deviceId, seq } of await firstSince[kind](db, places))
        starts.set(deviceId, Math.min(seq - 1, starts.get(deviceId) ?? seq))
  })
  const data = page.data.map((head) => ({
    ...head,
    start: Math.min(head.seq, starts.get(head.deviceId) ?? head.seq),
  }))
  return { ...page, data }
}

type Since = { deviceId: string; since: Instant }

const firstSince = {
  diagnostic: preparedForEach({ deviceId: 'text', since: 'text' }, firstSinceIn(tables.diagnostic)),
  events: preparedForEach({ deviceId: 'text', since: 'text' }, firstSinceIn(tables.events)),
}

/**
 * The first entries by time, along the index, and of them the one that came in first. Clocks of machines are set, and entries
 * come in late, so the two are not always the same; among all entries since 1970 it would be a read of the whole log.
 */
function firstSinceIn(table: string) {
  return (db: Db, { deviceId, since }: Each<Since>) =>
    db
      .selectFrom((eb) =>
        eb
          // Both tables have the columns used here.
          .selectFrom(table as 'agent_logs')
          .select(['device_id', 'seq'])
          .where('device_id', '=', deviceId)
          .where('timestamp', '>=', since)
          .orderBy('timestamp')
          .orderBy('id')
          .limit(maxSince)
          .as('first'),
      )
      .select((eb) => ['device_id as deviceId', eb.fn.min<number>('seq').as('seq')])
      .groupBy('device_id')
}

/** What to read of a device: entries after `after` up to `upTo`, of one origin unless it is empty, and of up to four levels. */
type Span = {
  deviceId: string
  after: number
  upTo: number
  rows: number
  origin: string
  level1: string
  level2: string
  level3: string
  level4: string
}

const spanColumns = {
  deviceId: 'text',
  after: 'bigint',
  upTo: 'bigint',
  rows: 'bigint',
  origin: 'text',
  level1: 'text',
  level2: 'text',
  level3: 'text',
  level4: 'text',
} as const

const entriesOf = (db: Db, table: string, by: string, span: Each<Span>) =>
  db
    .selectFrom(table as 'agent_logs')
    .where('device_id', '=', span.deviceId)
    .where('seq', '>', span.after)
    .where('seq', '<=', span.upTo)
    .where('level', 'in', [span.level1, span.level2, span.level3, span.level4])
    .where((eb) => eb.or([eb(span.origin, '=', ''), eb(by as 'component', '=', span.origin)]))
    .limit(span.rows)

const inOrder = {
  diagnostic: preparedForEach(spanColumns, (db, span: Each<Span>) =>
    entriesOf(db, tables.diagnostic, 'component', span).selectAll().orderBy('seq'),
  ),
  events: preparedForEach(spanColumns, (db, span: Each<Span>) =>
    entriesOf(db, tables.events, 'source', span).selectAll().orderBy('seq'),
  ),
}
const newest = {
  diagnostic: preparedForEach(spanColumns, (db, span: Each<Span>) =>
    entriesOf(db, tables.diagnostic, 'component', span)
      .select(['id', 'created_at', 'seq'])
      .orderBy('seq', 'desc'),
  ),
  events: preparedForEach(spanColumns, (db, span: Each<Span>) =>
    entriesOf(db, tables.events, 'source', span).select(['id', 'created_at', 'seq']).orderBy('seq', 'desc'),
  ),
}

/** What a filter asks of a kind; undefined where none of it can match. */
function askedOf(kind: LogKind, { kind: only, level, component, source }: LogFilter) {
  const known = levelsOfKind[kind]
  const levels = [...new Set(level ? level.flatMap((name) => known[name] ?? []) : Object.values(known))]
  const meant = only ?? kindOf(component, source)
  if ((meant !== undefined && meant !== kind) || levels.length === 0) return undefined
  const [level1 = '', level2 = '', level3 = '', level4 = ''] = levels
  const origin = (kind === 'diagnostic' ? component : source) ?? ''
  return { origin, level1, level2, level3, level4 }
}

/**
 * Entries of each device after a place in it, in order of arrival, both kinds up to the position that both have reached.
 * Devices outside the scope are left out like devices that do not exist: a device that is deleted ends no tail.
 */
export async function logsAfter(
  db: Db,
  scope: Scope,
  places: readonly LogPosition[],
  filter: LogFilter,
  limit: number,
  checkTime: CheckTime,
): Promise<LogEntries & { places: ReadPosition[] }> {
  const wanted = new Map(places.map(({ deviceId, seq }) => [deviceId, seq]))
  // Read before the entries, so the entries include all up to it.
  const heads = await devicesIn(db, scope)
    .where('devices.id', 'in', [...wanted.keys()])
    .select(['devices.id as deviceId', 'devices.log_seq as upTo'])
    .execute()
  const grown = heads.flatMap(({ deviceId, upTo }) => {
    const after = wanted.get(deviceId)!
    return upTo > after ? [{ deviceId, after, upTo }] : []
  })
  if (grown.length === 0) return { diagnostic: [], events: [], places: [] }
  const rows = Math.max(1, Math.floor(limit / grown.length))
  const reached = new Map(grown.map(({ deviceId, upTo }) => [deviceId, upTo]))

  async function read<E extends { deviceId: string; seq: number }>(
    kind: LogKind,
    entries: (spans: Span[]) => Promise<E[]>,
  ): Promise<E[]> {
    const asked = askedOf(kind, filter)
    if (asked === undefined) return []
    const found: E[] = []
    await inPieces(grown, checkTime, async (spans) => {
      found.push(...(await entries(spans.map((span) => ({ ...span, ...asked, rows })))))
    })
    const byDevice = Map.groupBy(found, ({ deviceId }) => deviceId)
    for (const [deviceId, own] of byDevice)
      if (own.length === rows) reached.set(deviceId, Math.min(reached.get(deviceId)!, own.at(-1)!.seq))
    return found
  }

  const diagnostic = await read('diagnostic', async (spans) =>
    (await inOrder.diagnostic(db, spans)).map(toDiagnosticLog),
  )
  const events = await read('events', async (spans) =>
    (await inOrder.events(db, spans)).map((row) => toEventLog(row as unknown as DeviceEventLogRow)),
  )
  const isRead = ({ deviceId, seq }: LogPosition) => seq <= reached.get(deviceId)!
  return {
    diagnostic: diagnostic.filter(isRead),
    events: events.filter(isRead),
    places: grown.map(({ deviceId, upTo }) => {
      const seq = reached.get(deviceId)!
      return { deviceId, seq, more: seq < upTo }
    }),
  }
}

/** The newest entries of a device among which the newest of all are looked for: a rare one is not sought in all of its log. */
const sought = 200

/** The newest entries of all devices, up to a number of devices, the oldest of them first. */
export async function newestLogs(
  db: Db,
  scope: Scope,
  filter: LogFilter,
  limit: number,
  checkTime: CheckTime,
): Promise<LogEntries & { incompleteResults: boolean }> {
  type Candidate = { kind: LogKind; id: string; created_at: string; seq: number }
  let best: Candidate[] = []
  const heads = await devicesWithLogs(db, scope, undefined)
    .limit(maxDevicesOfNewest + 1)
    .execute()
  await inPieces(heads.slice(0, maxDevicesOfNewest), checkTime, async (piece) => {
    for (const kind of logKinds) {
      const asked = askedOf(kind, filter)
      if (asked === undefined) continue
      const spans = piece.map(({ deviceId, seq }) => ({
        deviceId,
        after: Math.max(0, seq - sought),
        upTo: seq,
        ...asked,
        rows: Math.min(sought, limit),
      }))
      const found = (await newest[kind](db, spans)).map((one): Candidate => ({ kind, ...one }))
      best = [...best, ...found].sort(byArrival).slice(-limit)
    }
  })
  const idsOf = (kind: LogKind) => best.flatMap((one) => (one.kind === kind ? [one.id] : []))
  const [diagnostic, events] = await Promise.all([
    withIds(idsOf('diagnostic'), (ids) =>
      db
        .selectFrom('agent_logs')
        .selectAll()
        .where('id', 'in', ids)
        .orderBy('created_at')
        .orderBy('seq')
        .execute(),
    ),
    withIds(idsOf('events'), (ids) =>
      db
        .selectFrom('device_event_logs')
        .selectAll()
        .where('id', 'in', ids)
        .orderBy('created_at')
        .orderBy('seq')
        .execute(),
    ),
  ])
  return {
    diagnostic: diagnostic.map(toDiagnosticLog),
    events: events.map(toEventLog),
    incompleteResults: heads.length > maxDevicesOfNewest,
  }
}

const withIds = async <R>(ids: string[], find: (ids: string[]) => Promise<R[]>): Promise<R[]> =>
  ids.length === 0 ? [] : find(ids)

const byArrival = (a: { created_at: string; seq: number }, b: typeof a): number =>
  a.created_at < b.created_at ? -1 : a.created_at > b.created_at ? 1 : a.seq - b.seq
