import { once } from 'node:events'
import { statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import Database from 'better-sqlite3'
import { expect, onTestFinished, test, vi } from 'vitest'
import { openStorage } from '../../src/storage/open.ts'
import { sqliteFile } from '../../src/storage/sqlite/file.ts'
import { checkpointFrames, pollMs } from '../../src/storage/sqlite/wal-checkpointer.ts'
import type { WalStatus } from '../../src/storage/sqlite/wal-checkpointer-thread.ts'
import { temporaryFolder } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

const pageSize = 4096
/** Pages that make a log due. */
const more = checkpointFrames + 500

/** A storage with notes, and the threads that were started since. */
async function open() {
  const dataDir = await temporaryFolder()
  const threads: Worker[] = []
  const started = (thread: Worker) => threads.push(thread)
  process.on('worker', started)
  const storage = await openStorage({ dataDir })
  onTestFinished(async () => {
    process.off('worker', started)
    await storage.close()
  })
  await createNotes(storage)
  const file = sqliteFile(dataDir)
  const beside = new Database(file)
  onTestFinished(() => void beside.close())
  const look = beside.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')
  let last = 0
  /** Adds notes that fill so many pages. After the first of them, and after the last, the log is looked at. */
  const fill = async (pages: number) => {
    const perNote = 50
    const count = Math.ceil(pages / perNote)
    for (let i = 1; i <= count; i++) {
      const id = ++last
      if (i === 1 || i === count) await sleep(2 * pollMs)
      await storage.write((tx) => addNote(tx, id, `${id} `.padEnd((perNote * pageSize) / 2, 'x')))
    }
  }
  /** But for what came in after it had started over, and was too little to copy. */
  const copied = () =>
    vi.waitFor(() => {
      const { log, checkpointed } = look.get()!
      expect(log - checkpointed).toBeLessThan(checkpointFrames)
    }, 20_000)
  return {
    storage,
    threads,
    fill,
    copied,
    logPages: () => statSync(`${file}-wal`).size / pageSize,
    last: () => last,
  }
}

test('a log that keeps growing is copied by a thread each time, and starts over', async () => {
  const { storage, threads, fill, copied, logPages, last } = await open()
  for (let round = 1; round <= 3; round++) {
    await fill(more)
    await copied()
  }
  expect(logPages()).toBeLessThan(3 * more)
  expect(threads).toHaveLength(1)
  expect(await noteIds(storage.read)).toHaveLength(last())
})

test('there is no thread where little is written', async () => {
  const { threads, fill } = await open()
  await fill(1000)
  expect(threads).toEqual([])
})

test('a thread that died is replaced, and the storage ends the one there is', async () => {
  const { storage, threads, fill, copied } = await open()
  await fill(more)
  await copied()
  await threads[0]!.terminate()
  await fill(more)
  await copied()
  expect(threads).toHaveLength(2)
  const ended = once(threads[1]!, 'exit')
  await storage.close()
  await ended
})
