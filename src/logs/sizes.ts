import { bytesOf, sumOf } from '../storage/query/expressions.ts'

/** Approximate bytes of an entry besides its texts: ids, times, index entries. */
const overhead = 400

export const logTables = ['agent_logs', 'device_event_logs'] as const
export type LogTable = (typeof logTables)[number]

/** The texts of an entry that may be long. */
const texts = {
  agent_logs: ['message', 'fields', 'component'],
  device_event_logs: ['message', 'details', 'source', 'event_id'],
} as const satisfies Record<LogTable, readonly string[]>

type Data = Record<string, unknown> | null

/** Bytes of an entry with these texts. */
export function sizeOf(data: Data, ...values: (string | null)[]): number {
  const own = data === null ? 0 : Buffer.byteLength(JSON.stringify(data))
  return values.reduce((sum, text) => sum + (text === null ? 0 : Buffer.byteLength(text)), overhead + own)
}

/** The same for a stored entry, and for many. */
export const sizeIn = (table: LogTable) => bytesOf(texts[table], overhead)
export const sumOfSizes = (table: LogTable) => sumOf(sizeIn(table))
