import { parentPort, workerData } from 'node:worker_threads'
import { lowerThreadPriority } from '../../core/thread-priority.ts'
import { SqliteConnection } from './connection.ts'
import { openInterruptibleReader } from './file.ts'
import { QueryDeadline } from './query-deadline.ts'

export type ReaderData = { file: string; timeoutMs: number | undefined }

export type ReaderRequest = { id: number; sql: string; parameters: readonly unknown[] }

/** `ms`: how long the query ran, without its wait for the thread. */
export type ReaderReply = { id: number; ms: number } & (
  | { rows: unknown[] }
  | { error: { name: string; message: string; code?: string } }
)

const { file, timeoutMs } = workerData as ReaderData
lowerThreadPriority()
const deadline = new QueryDeadline()
const connection = new SqliteConnection(openInterruptibleReader(file, deadline))

parentPort?.on('message', ({ id, sql, parameters }: ReaderRequest) => {
  parentPort?.postMessage(reply(id, sql, parameters))
})

function reply(id: number, sql: string, parameters: readonly unknown[]): ReaderReply {
  const begun = performance.now()
  const ms = () => performance.now() - begun
  try {
    if (timeoutMs !== undefined) deadline.begin(timeoutMs)
    const { rows } = connection.run(sql, parameters)
    return { id, ms: ms(), rows }
  } catch (cause) {
    const { name, message, code } = cause as Error & { code?: string }
    return { id, ms: ms(), error: { name, message, code } }
  }
}
