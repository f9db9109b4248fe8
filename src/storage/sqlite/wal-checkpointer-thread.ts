import { parentPort, workerData } from 'node:worker_threads'
import Database from 'better-sqlite3'

/** Pages in the write-ahead log, and how many of them are in the file as well. */
export type WalStatus = { log: number; checkpointed: number }

/** Each round copies what arrived during the one before, until fewer than `fewPages` are left. */
const rounds = 3
const fewPages = 100

/** Milliseconds to wait for those who read the log as it was: meanwhile nobody writes, and new readers read the file. */
const patience = 250

const database = new Database(workerData.file, { fileMustExist: true, timeout: patience })
const copy = database.prepare<[], WalStatus>('pragma wal_checkpoint(passive)')
const restart = database.prepare<[], WalStatus>('pragma wal_checkpoint(restart)')
const status = database.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')

parentPort?.on('message', (what: 'copy' | 'finish' | 'restart') => {
  if (what === 'restart') restart.get()
  else
    for (let round = 1; round <= (what === 'copy' ? rounds : 1); round++) {
      copy.get()
      const { log, checkpointed } = status.get()!
      if (log - checkpointed < fewPages) break
    }
  parentPort?.postMessage(status.get())
})
