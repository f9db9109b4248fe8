import type { z } from 'zod'
import { endInstant, instant, safeParse } from '../core/schema.ts'
import {
  type LogHead,
  type LogKind,
  type LogPosition,
  logTails,
  maxDevicesOfNewest,
  maxPositions,
} from '../logs/tails/contract.ts'
import type { CommandContext } from './base.ts'
import { currentOrg } from './current-org.ts'
import { usageError } from './exit-codes.ts'
import { type Batch, follow, mergeByTime, type Positions, retryUntilAvailable } from './follow.ts'
import { type LogRow, logStream, matcherOf, parseLogFilter, toLogRow } from './logs-tail.ts'
import { parseTime } from './parse-time.ts'
import { printNote } from './print.ts'

/** Devices that one command follows: it holds a place in each. */
const maxDevices = 10_000
/** Rows that are read before they are printed. */
const maxRows = 5000
/** For each page of a look, which asks for the places of all devices: other commands of the person share the rate limit. */
const everyMs = 1000

type Flags = Record<string, unknown>
type Reply = {
  diagnostic: LogRow[]
  events: LogRow[]
  places: (LogPosition & { more: boolean })[]
  incompleteResults?: boolean
}

/** The logs of every device of an organization as one stream, or of all that the caller can see. */
export async function tailAllLogs(run: CommandContext, flags: Flags): Promise<void> {
  const orgId = await currentOrg(run)
  const { kinds, levels } = parseLogFilter(flags)
  const { component, source } = flags as Record<string, string | undefined>
  const filter = {
    orgId,
    component,
    source,
    level: levels?.join(','),
    kind: kinds.length === 1 ? kinds[0] : undefined,
  }
  const since = timeOf(flags, 'since', instant)
  const until = timeOf(flags, 'until', endInstant)
  const matches = matcherOf(flags)
  const isWanted = (row: LogRow) =>
    matches(row) &&
    (since === undefined || row.timestamp >= since) &&
    (until === undefined || row.timestamp < until)
  /** Of the devices, by id; those of a look replace those of the look before. */
  let hostnames = new Map<string, string>()
  /** Where the next look goes on: a device with many entries holds no others. */
  let lastRead = ''
  /** Of the last look. */
  let pages = 1
  let isFollowing = false

  /** A look has many requests: one that is refused is repeated alone. What the first look is refused ends the command. */
  const persistently = <T>(request: () => Promise<T>): Promise<T> =>
    isFollowing ? retryUntilAvailable(request) : request()

  async function heads(from?: string): Promise<LogHead[]> {
    const found: LogHead[] = []
    let asked = 0
    for (let cursor: string | undefined; ; ) {
      const query = { orgId, since: from, cursor }
      const { data, pagination } = await persistently(() => run.client.call(logTails.heads, { query }))
      asked += 1
      found.push(...data)
      if (found.length > maxDevices)
        throw usageError(
          `More than ${maxDevices} devices have logs here`,
          'name an organization with --org, or the devices to follow',
        )
      cursor = pagination.nextCursor ?? undefined
      if (cursor === undefined || data.length === 0) break
    }
    pages = asked
    hostnames = new Map(found.map(({ deviceId, hostname }) => [deviceId, hostname]))
    return found
  }

  async function read(query: { after?: string; limit?: number }): Promise<Reply & { rows: LogRow[] }> {
    const reply = (await persistently(() =>
      run.client.request(logTails.read, { query: { ...filter, ...query } }),
    )) as Reply
    const rowsOf = (kind: LogKind) =>
      reply[kind].map((row) => toLogRow(kind, hostnames.get(String(row.deviceId)) ?? '-', row))
    return { ...reply, rows: [...rowsOf('diagnostic'), ...rowsOf('events')] }
  }

  const placesOf = (all: LogHead[]): Positions =>
    Object.fromEntries(all.map(({ deviceId, seq, start = seq }) => [deviceId, start]))

  async function after(from: Positions): Promise<Batch> {
    const all = await heads()
    // The numbers of what comes in from now on would be read already.
    const lowered = all.filter(({ deviceId, seq }) => seq < (from[deviceId] ?? 0))
    if (lowered.length > 0) printNote(restoredNote(lowered))
    const at = { ...from, ...Object.fromEntries(lowered.map(({ deviceId, seq }) => [deviceId, seq])) }
    const grown = all.filter(({ deviceId, seq }) => seq > (at[deviceId] ?? 0)).map(({ deviceId }) => deviceId)
    const queue = [...grown.filter((id) => id > lastRead), ...grown.filter((id) => id <= lastRead)]
    const rows: LogRow[] = []
    const places: LogPosition[] = []
    let more = false
    while (queue.length > 0 && rows.length < maxRows) {
      const devices = queue.splice(0, maxPositions)
      const reply = await read({ after: devices.map((id) => `${id}:${at[id] ?? 0}`).join(',') })
      lastRead = devices.at(-1)!
      rows.push(...reply.rows)
      places.push(...reply.places)
      more ||= reply.places.some((one) => one.more)
    }
    const reached = Object.fromEntries(places.map(({ deviceId, seq }) => [deviceId, seq]))
    return {
      rows: inOrder(rows).filter(isWanted),
      at: { ...(Object.keys(at).length > maxDevices ? ofDevices(at, hostnames) : at), ...reached },
      more: more || queue.length > 0,
    }
  }

  await follow(run, flags, {
    ...logStream,
    everyMs: () => everyMs * pages,
    source: {
      async newest(lines) {
        const at = placesOf(await heads(since))
        if (since !== undefined) return after(at)
        if (lines === 0) return { rows: [], at, more: false }
        const { rows, incompleteResults } = await read({ limit: lines })
        if (incompleteResults)
          printNote(
            `There are more than ${maxDevicesOfNewest} devices here, and these are the newest entries of ${maxDevicesOfNewest} of them: name ${orgId === undefined ? 'an organization with --org, or devices,' : 'devices'} to see those of others`,
          )
        // What came in after the places were read is read again behind them.
        const before = rows.filter(({ deviceId, seq }) => seq <= (at[String(deviceId)] ?? 0))
        return { rows: inOrder(before).filter(isWanted).slice(-lines), at, more: false }
      },
      after(at) {
        isFollowing = flags.follow === true
        return after(at)
      },
    },
  })
}

function restoredNote(devices: LogHead[]): string {
  const [{ hostname }] = devices as [LogHead]
  const [logs, have, follows] =
    devices.length === 1
      ? [`The log of ${hostname}`, 'has', 'it is']
      : [`The logs of ${hostname} and ${devices.length - 1} more`, 'have', 'they are']
  return `${logs} ${have} fewer entries than were read, as after a restore of the service: ${follows} followed from the newest entry on`
}

/** In the order of arrival: by time, and by number within a device. */
function inOrder(rows: LogRow[]): LogRow[] {
  const byDevice = Map.groupBy(rows, ({ deviceId }) => deviceId)
  const each = [...byDevice.values()].map((own) => own.sort((a, b) => a.seq - b.seq))
  return mergeByTime(each, ({ createdAt }) => createdAt)
}

const ofDevices = (at: Positions, devices: ReadonlyMap<string, string>): Positions =>
  Object.fromEntries(Object.entries(at).filter(([id]) => devices.has(id)))

/** The instant of a flag, as the service stores it: rows are compared with it here. */
function timeOf(flags: Flags, name: string, schema: z.ZodType<string>): string | undefined {
  const said = flags[name] as string | undefined
  if (said === undefined) return undefined
  const parsed = safeParse(schema, parseTime(said, `--${name}`))
  if (parsed.success) return parsed.data
  throw usageError(`--${name}: ${parsed.error.issues[0]!.message}`)
}
