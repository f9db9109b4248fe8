import { randomBytes } from 'node:crypto'
import { open as openFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { expect, onTestFinished } from 'vitest'
import type { Dialect } from '../../src/storage/db.ts'
import { administer } from '../postgres-databases.ts'
import type { Place } from './process.ts'

const nameOf = (databaseUrl: string): string => new URL(databaseUrl).pathname.slice(1)

/** Writes garbage over the first page of each table while nobody has it in memory; on Postgres in a copy. */
export async function damaged(
  kind: Dialect,
  { dataDir, databaseUrl }: Place,
  tables: string[],
): Promise<{ dataDir: string; databaseUrl?: string }> {
  if (kind === 'sqlite') {
    await damageSqlite(dataDir, (database) => tables.map((table) => rootPageOf(database, table)))
    return { dataDir }
  }
  const url = new URL(databaseUrl!)
  const { copy, folder } = await copyOf(nameOf(databaseUrl!))
  url.pathname = `/${copy}`
  const files = await asking(url.href, async (client) => {
    const found = tables.map((table) => client.query(`select pg_relation_filepath($1) as file`, [table]))
    return (await Promise.all(found)).map(({ rows }) => rows[0].file as string)
  })
  for (const file of files) await overwrite(join(folder, file), 0, 8192)
  return { dataDir, databaseUrl: url.href }
}

type Sqlite = import('better-sqlite3').Database

const rootPageOf = (database: Sqlite, name: string): number =>
  database.prepare<[string], number>('select rootpage from sqlite_schema where name = ?').pluck().get(name)!

/** Writes garbage over pages, counted from 1, of a database that no process has open. */
export async function damageSqlite(dataDir: string, pages: (database: Sqlite) => number[]): Promise<void> {
  const path = join(dataDir, 'svc.sqlite')
  const { default: Database } = await import('better-sqlite3')
  const database = new Database(path)
  database.pragma('wal_checkpoint(truncate)')
  const size = database.pragma('page_size', { simple: true }) as number
  const numbers = pages(database)
  database.close()
  for (const page of numbers) await overwrite(path, (page - 1) * size, size)
}

export async function asking<T>(databaseUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(databaseUrl)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

async function copyOf(name: string): Promise<{ copy: string; folder: string }> {
  const copy = `damaged_${randomBytes(6).toString('hex')}`
  onTestFinished(() =>
    administer(async (client) => {
      await client.query(`drop database if exists ${copy} with (force)`)
    }),
  )
  const folder = await administer(async (client) => {
    await client.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`)
    await client.query(`create database ${copy} template ${name} strategy file_copy`)
    const { rows } = await client.query(`select setting from pg_settings where name = 'data_directory'`)
    return rows[0].setting as string
  })
  return { copy, folder }
}

async function overwrite(path: string, from: number, size: number): Promise<void> {
  const before = await readFile(path)
  expect(before.length).toBeGreaterThanOrEqual(from + size)
  const file = await openFile(path, 'r+')
  await file.write(randomBytes(size), 0, size, from)
  await file.close()
}
