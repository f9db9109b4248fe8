import { parentPort, workerData } from 'node:worker_threads'
import { lowerThreadPriority } from '../../core/thread-priority.ts'
import { SqliteConnection } from './connection.ts'
import { openInterruptibleReader } from './file.ts'
import { QueryDeadline } from './query-deadline.ts'

export type ReaderData = { file: string; timeoutMs: number | undefined }

export type ReaderRequest = { id: number; sql: string; parameters: readonly unknown[] }

export type ReaderReply =
  | { id: number; rows: unknown[] }
  | { id: number; error: { name: string; message: string; code?: string } }

const { file, timeoutMs } = workerData as ReaderData
lowerThreadPriority()
const deadline = new QueryDeadline()
const connection = new SqliteConnection(openInterruptibleReader(file, deadline))

parentPort?.on('message', ({ id, sql, parameters }: ReaderRequest) => {
  parentPort?.postMessage(reply(id, sql, parameters))
})

function reply(id: number, sql: string, parameters: readonly unknown[]): ReaderReply {
  try {
    if (timeoutMs !== undefined) deadline.begin(timeoutMs)
    return { id, rows: connection.run(sql, parameters).rows }
  } catch (cause) {
    const { name, message, code } = cause as Error & { code?: string }
    return { id, error: { name, message, code } }
  }
}
