import { z } from 'zod'
import type { Endpoint } from '../core/endpoint.ts'
import { DiagnosticLog, diagnosticLogs } from '../logs/diagnostic/contract.ts'
import { EventLog, eventLogs } from '../logs/events/contract.ts'
import type { CommandContext } from './base.ts'
import { schemaColumns } from './columns.ts'
import { resolveWithinOrg } from './current-org.ts'
import { usageError } from './exit-codes.ts'
import { type Batch, follow, mergeByTime, type Positions } from './follow.ts'
import { parseTime } from './parse-time.ts'

const kinds = ['diagnostic', 'events'] as const
type Kind = (typeof kinds)[number]

const lists: Record<Kind, Endpoint> = { diagnostic: diagnosticLogs.list, events: eventLogs.list }

/** Level names of both kinds, with each other's synonyms. */
const levels: Record<Kind, Record<string, string>> = {
  diagnostic: { debug: 'debug', info: 'info', warn: 'warn', warning: 'warn', error: 'error' },
  events: { info: 'info', warn: 'warning', warning: 'warning', error: 'error', critical: 'critical' },
}
export const levelNames = [...new Set(kinds.flatMap((kind) => Object.keys(levels[kind])))]

type Flags = Record<string, unknown>
type Row = { seq: number; createdAt: string; message: string } & Record<string, unknown>
type Reply = { data: Row[]; head: number; pagination: { nextCursor: string | null } }
type Device = { id: string; name: string }

const pageSize = 500

/** Columns of both kinds, and of one of them. */
const known = [
  'kind',
  'device',
  ...schemaColumns(z.object({ ...DiagnosticLog.shape, ...EventLog.shape }) as z.ZodType),
]
const usual = ['timestamp', 'device', 'level', 'source', 'message']

/** The logs of some devices as one stream, in the order of their arrival. */
export async function tailLogs(run: CommandContext, names: string[], flags: Flags): Promise<void> {
  const queries = queriesOf(flags)
  const devices = await Promise.all(names.map((name) => deviceOf(run, name)))
  const grep = (flags.grep as string | undefined)?.toLowerCase()
  const wanted = ({ message }: Row) => grep === undefined || message.toLowerCase().includes(grep)

  async function ask(device: Device, kind: Kind, query: Record<string, unknown>): Promise<Reply> {
    const whole = { ...queries[kind], ...query }
    const reply = (await run.client.request(lists[kind], {
      params: { id: device.id },
      query: whole,
    })) as Reply
    const data = reply.data.map((row): Row => {
      const source = kind === 'events' ? row.source : row.component
      return { kind, device: device.name, ...row, source }
    })
    return { ...reply, data }
  }

  /** Both kinds are read up to the position that both have reached. */
  async function readDevice(device: Device, query: Record<string, unknown>) {
    const asked = kinds.filter((kind) => queries[kind])
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
    kind: 'logs',
    columns: usual,
    known,
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

/** The query for each kind; a kind that cannot match is not queried. */
function queriesOf(flags: Flags): { [K in Kind]?: Record<string, unknown> } {
  const { component, source } = flags as Record<string, string | undefined>
  const kind = (flags.kind as Kind | undefined) ?? onlyKind(component, source)
  if (kind === 'events' && component !== undefined)
    throw usageError('--component applies to diagnostic logs', 'events have a --source')
  if (kind === 'diagnostic' && source !== undefined)
    throw usageError('--source applies to events', 'diagnostic logs have a --component')
  const words = (flags.level as string | undefined)?.split(',').map((word) => word.trim().toLowerCase())
  const unknown = words?.find((word) => !levelNames.includes(word))
  if (unknown !== undefined) throw usageError(`There is no level "${unknown}"`, levelNames.join(', '))
  const levelOf = (one: Kind) => words?.flatMap((word) => levels[one][word] ?? []).join(',')
  const [since, until] = ['since', 'until'].map((name) =>
    flags[name] === undefined ? undefined : parseTime(String(flags[name]), `--${name}`),
  )
  const queries = {
    diagnostic: { level: levelOf('diagnostic'), component, since, until },
    events: { level: levelOf('events'), source, startDate: since, endDate: until },
  }
  const asked = kinds.filter((one) => (kind === undefined || kind === one) && queries[one].level !== '')
  if (asked.length === 0) throw usageError(`No ${kind} log has the level ${String(flags.level)}`)
  return Object.fromEntries(asked.map((one) => [one, queries[one]]))
}

const onlyKind = (component?: string, source?: string): Kind | undefined => {
  if (component !== undefined && source === undefined) return 'diagnostic'
  return source !== undefined && component === undefined ? 'events' : undefined
}
