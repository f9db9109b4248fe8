import { bytesOf, sumOf } from '../storage/dialect.ts'

/** Ids, times, its places in the indexes: what an entry takes besides its texts, roughly. */
const overhead = 400

export const logTables = ['agent_logs', 'device_event_logs'] as const
export type LogTable = (typeof logTables)[number]

/** The texts of an entry that may be long. */
const texts = {
  agent_logs: ['message', 'fields', 'component'],
  device_event_logs: ['message', 'details', 'source', 'event_id'],
} as const satisfies Record<LogTable, readonly string[]>

type Data = Record<string, unknown> | null

/** How many bytes an entry takes that has these texts. */
export function sizeOf(data: Data, ...said: (string | null)[]): number {
  const own = data === null ? 0 : Buffer.byteLength(JSON.stringify(data))
  return said.reduce((sum, text) => sum + (text === null ? 0 : Buffer.byteLength(text)), overhead + own)
}

/** The same of an entry that is kept, and of many. */
export const sizeIn = (table: LogTable) => bytesOf(texts[table], overhead)
export const sumOfSizes = (table: LogTable) => sumOf(sizeIn(table))
