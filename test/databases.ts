import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, inject, onTestFinished } from 'vitest'
import { migrations } from '../migrations/index.ts'
import type { Dialect } from '../src/storage/db.ts'
import { migrate } from '../src/storage/migrate.ts'
import { openStorage, type Storage } from '../src/storage/open.ts'
import { isSoak } from './depth.ts'
import { emptyDatabase, migratedDatabase, type PostgresDatabase } from './postgres-databases.ts'

export type TestDatabase = {
  storage: Storage
  /** Of this database; undefined on SQLite. */
  databaseUrl?: string
  dataDir: string
  /** Also done by itself, when the test (or, from beforeAll, the describe) ends. */
  close(): Promise<void>
}

export type Open = () => Promise<TestDatabase>

/** Describes the same tests for both databases, or for these. Each `open` gives a fresh, migrated one. */
export function onEveryDatabase(
  tests: (kind: Dialect, open: Open) => void,
  kinds: readonly Dialect[] = ['sqlite', 'postgres'],
): void {
  describeEvery(tests, openMigrated, kinds)
}

let turns = 0

/**
 * Describes tests of what is decided above the storage: `npm test` runs each test on one of the databases, and the next on the other
 * (test/turns.ts); the soak runs all on both. They are not told which one it is: a test that has to know runs on both.
 */
export function inTurn(tests: (open: Open) => void): void {
  turns += 1
  describeEvery((_, open) => tests(open), openMigrated, ['sqlite', 'postgres'], turns)
}

/**
 * Describes tests of what is decided above the storage and prepared once for all of them, such as pages in a browser: on
 * SQLite, and in the soak on both databases.
 */
export function aboveStorage(tests: (kind: Dialect, open: Open) => void): void {
  onEveryDatabase(tests, isSoak ? undefined : ['sqlite'])
}

/** Describes the same tests for both databases, without any table. */
export function onEveryEmptyDatabase(tests: (kind: Dialect, open: Open) => void): void {
  describeEvery(tests, openEmpty, ['sqlite', 'postgres'])
}

function describeEvery(
  tests: (kind: Dialect, open: Open) => void,
  open: (kind: Dialect) => Promise<TestDatabase>,
  kinds: readonly Dialect[],
  turns?: number,
): void {
  describe.each(kinds)('on %s', { meta: { turns } }, (kind) => {
    const leftOpen: TestDatabase[] = []
    afterAll(async () => {
      for (const database of leftOpen) await database.close()
    })
    tests(kind, async () => {
      const database = await open(kind)
      try {
        onTestFinished(database.close)
      } catch {
        leftOpen.push(database)
      }
      return database
    })
  })
}

export async function openMigrated(kind: Dialect): Promise<TestDatabase> {
  const dataDir = await temporaryFolder()
  if (kind === 'postgres') return opened(dataDir, await migratedDatabase(migrateAndClose))
  await copyFile(await migratedFile(), join(dataDir, 'svc.sqlite'))
  return opened(dataDir)
}

export async function openEmpty(kind: Dialect): Promise<TestDatabase> {
  const dataDir = await temporaryFolder()
  return opened(dataDir, kind === 'postgres' ? await emptyDatabase() : undefined)
}

async function opened(dataDir: string, database?: PostgresDatabase): Promise<TestDatabase> {
  const databaseUrl = database?.url
  const storage = await openStorage({ dataDir, databaseUrl })
  const close = async () => {
    await storage.close()
    await database?.close()
    await rm(dataDir, { recursive: true, force: true })
  }
  return { storage, databaseUrl, dataDir, close }
}

/** Removed at the end of the run. */
export function temporaryFolder(): Promise<string> {
  return mkdtemp(join(inject('temporaryFolder'), 'test-'))
}

let file: Promise<string> | undefined

function migratedFile(): Promise<string> {
  file ??= migrateAndClose().then((folder) => join(folder, 'svc.sqlite'))
  return file
}

async function migrateAndClose(databaseUrl?: string): Promise<string> {
  const dataDir = await temporaryFolder()
  const storage = await openStorage({ dataDir, databaseUrl })
  await migrate(storage, migrations)
  await storage.close()
  return dataDir
}
