import { randomBytes } from 'node:crypto'
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, describe, inject, onTestFinished } from 'vitest'
import { migrations } from '../migrations/index.ts'
import type { Dialect } from '../src/storage/db.ts'
import { migrate } from '../src/storage/migrate.ts'
import { openStorage, type Storage } from '../src/storage/open.ts'

export type TestDatabase = {
  storage: Storage
  /** Of this database; undefined on SQLite. */
  databaseUrl?: string
  dataDir: string
  /** Also done by itself, when the test (or, from beforeAll, the describe) ends. */
  close(): Promise<void>
}

export type Open = () => Promise<TestDatabase>

/** Describes the same tests for both databases. Each `open` gives a fresh, migrated one. */
export function onEveryDatabase(tests: (kind: Dialect, open: Open) => void): void {
  describeEvery(tests, openMigrated)
}

/** The same, without any table. */
export function onEveryEmptyDatabase(tests: (kind: Dialect, open: Open) => void): void {
  describeEvery(tests, openEmpty)
}

function describeEvery(
  tests: (kind: Dialect, open: Open) => void,
  open: (kind: Dialect) => Promise<TestDatabase>,
): void {
  describe.each(['sqlite', 'postgres'] as const)('on %s', (kind) => {
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
  if (kind === 'postgres') return opened(dataDir, await createDatabase(await migratedDatabase()))
  await copyFile(await migratedFile(), join(dataDir, 'svc.sqlite'))
  return opened(dataDir)
}

export async function openEmpty(kind: Dialect): Promise<TestDatabase> {
  const dataDir = await temporaryFolder()
  return opened(dataDir, kind === 'postgres' ? await createDatabase('template0') : undefined)
}

async function opened(dataDir: string, name?: string): Promise<TestDatabase> {
  const databaseUrl = name && urlOf(name)
  const storage = await openStorage({ dataDir, databaseUrl })
  const close = async () => {
    await storage.close()
    if (name) await administer((client) => client.query(`drop database if exists ${name} with (force)`))
    await rm(dataDir, { recursive: true, force: true })
  }
  return { storage, databaseUrl, dataDir, close }
}

/** Removed at the end of the run. */
export function temporaryFolder(): Promise<string> {
  return mkdtemp(join(inject('temporaryFolder'), 'test-'))
}

function urlOf(database: string): string {
  const url = new URL(inject('postgresUrl'))
  url.pathname = `/${database}`
  return url.href
}

let administrator: Promise<pg.Client> | undefined

/** Runs statements as the administrator of the test server, in a connection that is kept as long as the process. */
export async function administer<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  administrator ??= connected()
  return work(await administrator)
}

async function connected(): Promise<pg.Client> {
  const client = new pg.Client(inject('postgresUrl'))
  // The server ends before this process does.
  client.on('error', () => {})
  await client.connect()
  return client
}

async function createDatabase(template: string): Promise<string> {
  const name = `test_${randomBytes(8).toString('hex')}`
  // In memory a copy of the files is made faster than a log of their pages.
  await administer((client) =>
    client.query(`create database ${name} template ${template} strategy file_copy`),
  )
  return name
}

let template: Promise<string> | undefined

/** Made once in a run, by whichever test process comes first. */
function migratedDatabase(): Promise<string> {
  template ??= administer(async (client) => {
    await client.query('select pg_advisory_lock(1)')
    try {
      const made = await client.query(`select 1 from pg_database where datname = 'migrated'`)
      if (made.rowCount === 0) {
        await client.query('drop database if exists unmigrated with (force)')
        await client.query('create database unmigrated template template0')
        await migrateAndClose(urlOf('unmigrated'))
        await client.query('alter database unmigrated rename to migrated')
      }
    } finally {
      // The connection stays, and whoever waits for it would wait for ever.
      await client.query('select pg_advisory_unlock(1)')
    }
    return 'migrated'
  })
  return template
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
