import { statSync } from 'node:fs'
import Database from 'better-sqlite3'
import { expect, onTestFinished, test } from 'vitest'
import { checkServer } from '../../daemon/doctor/database.ts'
import { openReadOnly, openStorage } from '../../src/storage/open.ts'
import { serverStateOf } from '../../src/storage/server-state.ts'
import { sqliteFile } from '../../src/storage/sqlite/file.ts'
import { vacuumSqlite } from '../../src/storage/sqlite/vacuum.ts'
import { Home } from '../cli/run.ts'
import { temporaryFolder } from '../databases.ts'
import { addNote, createNotes, deleteNotes, noteIds } from './notes.ts'

const count = 200
const ids = Array.from({ length: count }, (_, n) => n + 1)
/** 80 pages, with its index. */
const textOf = (id: number) => `${id} `.padEnd(160_000, 'x')

/** A database of 62 MiB, of which all but the last note are deleted. */
async function fillAndDelete(dataDir: string) {
  const storage = await openStorage({ dataDir })
  onTestFinished(() => storage.close())
  await createNotes(storage)
  for (const id of ids) await storage.write((tx) => addNote(tx, id, textOf(id)))
  await storage.write((tx) => deleteNotes(tx, count))
  return storage
}

/** Also what the log has, which is copied back when the last connection closes. */
function pages(dataDir: string) {
  const database = new Database(sqliteFile(dataDir))
  const ask = (pragma: string) => database.pragma(pragma, { simple: true }) as number
  try {
    return { all: ask('page_count'), free: ask('freelist_count'), mode: ask('auto_vacuum') }
  } finally {
    database.close()
  }
}

test('a new file gives the room of deleted rows back, but for what new rows soon need', async () => {
  const dataDir = await temporaryFolder()
  const storage = await fillAndDelete(dataDir)
  const before = pages(dataDir)
  expect(before.free).toBeGreaterThan(15_000)
  // Beside writers.
  const writing = ids.slice(0, 50).map((id) => storage.write((tx) => addNote(tx, count + id)))
  await storage.giveSpaceBack()
  await Promise.all(writing)
  const after = pages(dataDir)
  expect(after.free).toBeGreaterThan(3000)
  expect(after.free).toBeLessThanOrEqual(4096)
  expect(after.all).toBeLessThan(before.all - 10_000)
  expect(await noteIds(storage.read)).toHaveLength(51)
  await storage.close()
  expect(statSync(sqliteFile(dataDir)).size).toBe(after.all * 4096)
})

test('a file of an earlier version does so after a vacuum, which nobody may use it during', async () => {
  const dataDir = await temporaryFolder()
  const old = new Database(sqliteFile(dataDir))
  old.exec('create table earlier (id integer)')
  old.close()
  const storage = await fillAndDelete(dataDir)
  const before = pages(dataDir)
  await storage.giveSpaceBack()
  expect(pages(dataDir)).toEqual(before)
  expect(before.mode).toBe(0)
  const stateOf = async () => {
    const reading = await openReadOnly({ dataDir })
    return serverStateOf(reading).finally(() => reading.close())
  }
  expect(await stateOf()).toMatchObject({ givesSpaceBack: false, freeShare: expect.closeTo(1, 1) })
  // As if it were larger.
  const advice = async () => {
    const reading = await openReadOnly({ dataDir })
    const large = { ...reading, sizes: async () => ({ data: 2 ** 31, log: 0 }) }
    const found = await checkServer(large).finally(() => reading.close())
    return found.filter(({ state }) => state === 'warning').map(({ remedy }) => remedy)
  }
  expect(await advice()).toEqual([
    expect.stringMatching(/svc db vacuum, which needs 4(\.0)? GiB of free disk/),
  ])
  await storage.close()
  const server = await openStorage({ dataDir, alone: true })
  await expect(vacuumSqlite(dataDir)).rejects.toThrow('Stop it first')
  expect(await noteIds(server.read)).toEqual([count])
  await server.close()
  const home = new Home()
  onTestFinished(() => home.remove())
  const { stdout, stderr, code } = await home.run(['db', 'vacuum', '--data-dir', dataDir, '--json'])
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(/needs 1\d\d(\.\d)? MiB of free disk, and about \d+ s/),
  ])
  const done = JSON.parse(stdout)
  expect(done.before).toBeGreaterThan(15_000 * 4096)
  expect(done.after).toBeLessThan(100 * 4096)
  expect(pages(dataDir)).toMatchObject({ free: 0, mode: 2 })
  expect(await stateOf()).toMatchObject({ givesSpaceBack: true })
  expect(await advice()).toEqual([])
  const postgres = await home.run(['db', 'vacuum'], { env: { DATABASE_URL: 'postgres://127.0.0.1/none' } })
  expect([postgres.code, postgres.stderr]).toEqual([1, expect.stringContaining('vacuum (full, analyze)')])
  const again = await openStorage({ dataDir })
  onTestFinished(() => again.close())
  expect(await noteIds(again.read)).toEqual([count])
  await expect(vacuumSqlite(await temporaryFolder())).rejects.toThrow('There is no database')
})
