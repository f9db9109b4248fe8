import { z } from 'zod'
import type { Endpoint } from '../core/endpoint.ts'
import { DiagnosticLog, diagnosticLogs } from '../logs/diagnostic/contract.ts'
import { EventLog, eventLogs } from '../logs/events/contract.ts'
import { kindOf, type LogKind, levelNames, levelsOfKind, logKinds } from '../logs/tails/contract.ts'
import type { CommandContext } from './base.ts'
import { schemaColumns } from './columns.ts'
import { resolveWithinOrg } from './current-org.ts'
import { usageError } from './exit-codes.ts'
import { type Batch, follow, mergeByTime, type Positions } from './follow.ts'
import { parseTime } from './parse-time.ts'
import { hueOf, type Style } from './style.ts'

const lists: Record<LogKind, Endpoint> = { diagnostic: diagnosticLogs.list, events: eventLogs.list }

type Flags = Record<string, unknown>
export type LogRow = { seq: number; createdAt: string; timestamp: string; message: string } & Record<
  string,
  unknown
>
type Reply = { data: LogRow[]; head: number; pagination: { nextCursor: string | null } }
type Device = { id: string; name: string }

const pageSize = 500

/** How both kinds are shown in one stream. */
export const logStream = {
  kind: 'logs',
  columns: ['timestamp', 'device', 'level', 'source', 'message'],
  known: [
    'kind',
    'device',
    ...schemaColumns(z.object({ ...DiagnosticLog.shape, ...EventLog.shape }) as z.ZodType),
  ],
  terminal: { secondary: ['source'], isLastWhole: true, paint: paintLog },
}

/** A device has the same color in every stream. */
function paintLog(style: Style, column: string, text: string, shown: string): string {
  if (column === 'device') return hueOf(style, text)(shown)
  const tone = column === 'level' && Object.hasOwn(levelTones, text) ? levelTones[text] : undefined
  return tone ? style[tone](shown) : shown
}

const levelTones: Record<string, 'bad' | 'warning' | 'dim'> = {
  error: 'bad',
  critical: 'bad',
  warn: 'warning',
  warning: 'warning',
  debug: 'dim',
}

/** A row of the stream, whose source is the component of the agent or that of the event. */
export function toLogRow(kind: LogKind, device: string, row: LogRow): LogRow {
  return { kind, device, ...row, source: kind === 'events' ? row.source : row.component }
}

/** Whether a message has the text of --grep. */
export function matcherOf({ grep }: Flags): (row: LogRow) => boolean {
  const text = (grep as string | undefined)?.toLowerCase()
  return ({ message }) => text === undefined || message.toLowerCase().includes(text)
}

/** The logs of some devices as one stream, in the order of their arrival. */
export async function tailLogs(run: CommandContext, names: string[], flags: Flags): Promise<void> {
  const queries = queriesOf(flags)
  const devices = await Promise.all(names.map((name) => deviceOf(run, name)))
  const wanted = matcherOf(flags)

  async function ask(device: Device, kind: LogKind, query: Record<string, unknown>): Promise<Reply> {
    const whole = { ...queries[kind], ...query }
    const reply = (await run.client.request(lists[kind], {
      params: { id: device.id },
      query: whole,
    })) as Reply
    return { ...reply, data: reply.data.map((row) => toLogRow(kind, device.name, row)) }
  }

  /** Both kinds are read up to the position that both have reached. */
  async function readDevice(device: Device, query: Record<string, unknown>) {
    const asked = logKinds.filter((kind) => queries[kind])
    const replies = await Promise.all(asked.map((kind) => ask(device, kind, query)))
    const more = query.after !== undefined && replies.some((one) => one.pagination.nextCursor !== null)
    const ends = replies.map(({ data, head, pagination }) =>
      query.after === undefined || pagination.nextCursor === null ? head : data.at(-1)!.seq,
    )
    const upTo = Math.min(...ends)
    const rows = replies.flatMap(({ data }) => data.filter(({ seq }) => seq <= upTo))
    return { device, more, upTo, rows: rows.sort((a, b) => a.seq - b.seq).filter(wanted) }
  }

  const batchOf = (parts: Awaited<ReturnType<typeof readDevice>>[]): Batch => ({
    rows: mergeByTime(
      parts.map(({ rows }) => rows),
      ({ createdAt }) => createdAt,
    ),
    at: Object.fromEntries(parts.map(({ device, upTo }) => [device.id, upTo])),
    more: parts.some(({ more }) => more),
  })

  await follow(run, flags, {
    ...logStream,
    source: {
      async newest(lines) {
        if (flags.since !== undefined) return this.after(Object.fromEntries(devices.map(({ id }) => [id, 0])))
        const limit = Math.min(lines, pageSize)
        const batch = batchOf(await Promise.all(devices.map((device) => readDevice(device, { limit }))))
        return { ...batch, rows: lines === 0 ? [] : batch.rows.slice(-lines) }
      },
      async after(at: Positions) {
        const place = (device: Device) => ({ after: at[device.id] ?? 0, limit: pageSize })
        return batchOf(await Promise.all(devices.map((device) => readDevice(device, place(device)))))
      },
    },
  })
}

async function deviceOf(run: CommandContext, name: string): Promise<Device> {
  return { id: await resolveWithinOrg(run, 'device', name), name }
}

/** The kinds and levels that the flags ask for. @throws usage where nothing can match */
export function parseLogFilter(flags: Flags): { kinds: LogKind[]; levels: string[] | undefined } {
  const { component, source } = flags as Record<string, string | undefined>
  const kind = (flags.kind as LogKind | undefined) ?? kindOf(component, source)
  if (kind === 'events' && component !== undefined)
    throw usageError('--component applies to diagnostic logs', 'events have a --source')
  if (kind === 'diagnostic' && source !== undefined)
    throw usageError('--source applies to events', 'diagnostic logs have a --component')
  const levels = (flags.level as string | undefined)?.split(',').map((word) => word.trim().toLowerCase())
  const names: readonly string[] = levelNames
  const unknown = levels?.find((word) => !names.includes(word))
  if (unknown !== undefined) throw usageError(`There is no level "${unknown}"`, levelNames.join(', '))
  const kinds = logKinds.filter(
    (one) =>
      (kind === undefined || kind === one) && (!levels || levels.some((word) => word in levelsOfKind[one])),
  )
  if (kinds.length === 0) throw usageError(`No ${kind} log has the level ${String(flags.level)}`)
  return { kinds, levels }
}

/** The query for each kind; a kind that cannot match is not queried. */
function queriesOf(flags: Flags): { [K in LogKind]?: Record<string, unknown> } {
  const { component, source } = flags as Record<string, string | undefined>
  const { kinds, levels } = parseLogFilter(flags)
  const levelOf = (one: LogKind) => levels?.flatMap((word) => levelsOfKind[one][word] ?? []).join(',')
  const [since, until] = ['since', 'until'].map((name) =>
    flags[name] === undefined ? undefined : parseTime(String(flags[name]), `--${name}`),
  )
  const queries = {
    diagnostic: { level: levelOf('diagnostic'), component, since, until },
    events: { level: levelOf('events'), source, startDate: since, endDate: until },
  }
  return Object.fromEntries(kinds.map((one) => [one, queries[one]]))
}
