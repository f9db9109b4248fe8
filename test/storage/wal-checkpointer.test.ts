import { once } from 'node:events'
import { statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import Database from 'better-sqlite3'
import { expect, onTestFinished, test, vi } from 'vitest'
import { openStorage } from '../../src/storage/open.ts'
import { sqliteFile } from '../../src/storage/sqlite/file.ts'
import { checkpointFrames, maxFrames, pollMs } from '../../src/storage/sqlite/wal-checkpointer.ts'
import type { WalStatus } from '../../src/storage/sqlite/wal-checkpointer-thread.ts'
import { temporaryFolder } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

const pageSize = 4096
/** More pages than start a checkpoint. */
const duePages = checkpointFrames + 500

/** A storage with notes, and the threads that it has started. */
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
  const secondConnection = new Database(file)
  onTestFinished(() => void secondConnection.close())
  const walStatus = secondConnection.prepare<[], WalStatus>('pragma wal_checkpoint(noop)')
  let last = 0
  /**
   * Adds notes that fill so many pages. Pauses after the first and before the last, so that the copier
   * polls.
   */
  const fill = async (pages: number) => {
    const perNote = 50
    const count = Math.ceil(pages / perNote)
    for (let i = 1; i <= count; i++) {
      const id = ++last
      if (i === 1 || i === count) await sleep(2 * pollMs)
      await storage.write((tx) => addNote(tx, id, `${id} `.padEnd((perNote * pageSize) / 2, 'x')))
    }
  }
  /** Except for pages that came after the log restarted, and are too few to copy. */
  const untilCopied = () =>
    vi.waitFor(() => {
      const { log, checkpointed } = walStatus.get()!
      expect(log - checkpointed).toBeLessThan(checkpointFrames)
    }, 20_000)
  return {
    storage,
    file,
    threads,
    fill,
    untilCopied,
    logPages: () => statSync(`${file}-wal`).size / pageSize,
    last: () => last,
  }
}

test('a growing log is copied by one thread each time, and restarts', async () => {
  const { storage, threads, fill, untilCopied, logPages, last } = await open()
  for (let round = 1; round <= 3; round++) {
    await fill(duePages)
    await untilCopied()
  }
  expect(logPages()).toBeLessThan(3 * duePages)
  expect(threads).toHaveLength(1)
  expect(await noteIds(storage.read)).toHaveLength(last())
})

test('a log that readers never leave alone starts over once it is long', async () => {
  const { fill, logPages, file } = await open()
  // Each begins before the one before ends.
  const readers = [new Database(file, { readonly: true }), new Database(file, { readonly: true })] as const
  let turn = 0
  const read = setInterval(() => {
    const [next, last] = turn++ % 2 === 0 ? readers : [readers[1], readers[0]]
    next.exec('begin')
    next.prepare('select count(*) from sqlite_schema').get()
    if (last.inTransaction) last.exec('commit')
  }, 100)
  onTestFinished(() => {
    clearInterval(read)
    for (const reader of readers) reader.close()
  })
  let longest = 0
  for (let filled = 0; filled < 2.5 * maxFrames; filled += checkpointFrames / 4) {
    await fill(checkpointFrames / 4)
    longest = Math.max(longest, logPages())
  }
  expect(longest).toBeLessThan(2 * maxFrames)
})

test('a log that grew beside one long reader is short again after it', async () => {
  const { fill, untilCopied, logPages, file } = await open()
  const reader = new Database(file, { readonly: true })
  onTestFinished(() => void reader.close())
  reader.exec('begin')
  reader.prepare('select count(*) from sqlite_schema').get()
  await fill(1.3 * maxFrames)
  expect(logPages()).toBeGreaterThan(1.3 * maxFrames)
  reader.exec('commit')
  await fill(duePages)
  await untilCopied()
  await fill(100)
  expect(logPages() * pageSize).toBeLessThan(72 * 2 ** 20)
})

test('no thread starts where little is written', async () => {
  const { threads, fill } = await open()
  await fill(1000)
  expect(threads).toEqual([])
})

test('a dead thread is replaced, and closing the storage ends the current one', async () => {
  const { storage, threads, fill, untilCopied } = await open()
  await fill(duePages)
  await untilCopied()
  await threads[0]!.terminate()
  await fill(duePages)
  await untilCopied()
  expect(threads).toHaveLength(2)
  const ended = once(threads[1]!, 'exit')
  await storage.close()
  await ended
})
