import { parentPort, workerData } from 'node:worker_threads'
import Database from 'better-sqlite3'

/** Pages in the write-ahead log, and how many of them are in the file as well. */
export type WalStatus = { log: number; checkpointed: number }

/** Each round copies what arrived during the one before, until less than `little` is left. */
const rounds = 3
const little = 100

const database = new Database(workerData.file, { fileMustExist: true })
const copy = database.prepare<[], WalStatus>('pragma wal_checkpoint(passive)')
const status = database.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')

parentPort?.on('message', (what: 'most' | 'rest') => {
  for (let round = 1; round <= (what === 'most' ? rounds : 1); round++) {
    copy.get()
    const { log, checkpointed } = status.get()!
    if (log - checkpointed < little) break
  }
  parentPort?.postMessage(status.get())
})
