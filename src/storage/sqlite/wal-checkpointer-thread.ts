import { parentPort, workerData } from 'node:worker_threads'
import Database from 'better-sqlite3'

/** Pages in the write-ahead log, and how many of them are in the file as well. */
export type WalStatus = { log: number; checkpointed: number }

/** Each round copies what arrived during the one before, until less than `little` is left. */
const rounds = 3
const little = 100

/** Milliseconds to wait for those who read the log as it was: meanwhile nobody writes, and new readers read the file. */
const patience = 250

const database = new Database(workerData.file, { fileMustExist: true, timeout: patience })
const copy = database.prepare<[], WalStatus>('pragma wal_checkpoint(passive)')
const startOver = database.prepare<[], WalStatus>('pragma wal_checkpoint(restart)')
const status = database.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')

parentPort?.on('message', (what: 'most' | 'rest' | 'start over') => {
  if (what === 'start over') startOver.get()
  else
    for (let round = 1; round <= (what === 'most' ? rounds : 1); round++) {
      copy.get()
      const { log, checkpointed } = status.get()!
      if (log - checkpointed < little) break
    }
  parentPort?.postMessage(status.get())
})
