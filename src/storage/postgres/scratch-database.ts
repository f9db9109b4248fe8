import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { formatBytes } from '../../core/byte-size.ts'
import { SetupError } from '../../core/errors.ts'
import { advisoryLocks } from '../advisory-locks.ts'
import { classifyDatabaseError, isDiskFull } from '../database-errors.ts'
import { explainDiskFull, type Purpose, type Scratch } from '../scratch.ts'

const { escapeIdentifier: id, escapeLiteral: text } = pg

const commands: Readonly<Record<Purpose, string>> = {
  rehearsal: 'svc db rehearse',
  drill: 'svc db drill',
}

export async function connectFor(purpose: Purpose, databaseUrl: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: commands[purpose],
    keepAlive: true,
  })
  // A lost connection fails the query that uses it.
  client.on('error', () => {})
  await client.connect()
  await client.query(
    'set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set lock_timeout = 5000',
  )
  // It rests while the scratch is filled. Postgres before 14 has no such limit.
  await client.query(
    `select set_config('idle_session_timeout', '0', false) from pg_settings where name = 'idle_session_timeout'`,
  )
  return client
}

/**
 * An empty database on the same server. Dropping it ends whatever is connected to it. Of a database there is one drill at a time,
 * which removes what a killed one left.
 * @throws SetupError when the role may not create one, or there is a drill
 */
export async function createScratchDatabase(
  databaseUrl: string,
  { purpose, note }: { purpose: Purpose; note(text: string): void },
): Promise<Scratch & { databaseUrl: string }> {
  const admin = await connectFor(purpose, databaseUrl)
  try {
    const { rows } = await admin.query(`
      select rolname as role, rolcreatedb or rolsuper as may, pg_database.oid, pg_encoding_to_char(encoding) as encoding,
        datcollate, datctype, pg_database_size(pg_database.oid) as bytes
      from pg_roles, pg_database where rolname = current_user and datname = current_database()`)
    const { role, may, oid, encoding, datcollate, datctype, bytes } = rows[0]
    if (!may)
      throw new SetupError(
        `The role ${role} may not create the database that the ${purpose} needs: run "alter role ${id(role)} createdb" as a superuser, and afterwards "alter role ${id(role)} nocreatedb".`,
      )
    const prefix = purpose === 'drill' ? `svc_drill_${oid}_` : 'svc_rehearsal_'
    if (purpose === 'drill') await beOnlyDrill(admin, prefix)
    const name = `${prefix}${randomBytes(6).toString('hex')}`
    const size = formatBytes(Number(bytes))
    // A client cannot see the disk of the server.
    note(`The ${purpose} needs about ${size} of free disk on the Postgres server, as much as the database`)
    const inWords = explainDiskFull(
      `The disk of the Postgres server is full: the ${purpose} needs about ${size} there, as much as the database. Free that much, and repeat it.`,
    )
    let isFull = false
    const explain = (error: unknown): unknown => {
      isFull ||= isDiskFull(error)
      return inWords(error)
    }
    const creation = `create database ${name} template template0 encoding ${text(encoding)} lc_collate ${text(datcollate)} lc_ctype ${text(datctype)}`
    await reserveRoom(admin)
      .then(() => admin.query(creation))
      .catch((error: unknown) => {
        throw explain(error)
      })
    const url = new URL(databaseUrl)
    url.pathname = `/${name}`
    let dropped: Promise<void> | undefined
    const drop = async () => {
      const emptied = isFull ? admin.query('close all').then(() => makeRoom(purpose, url.href)) : undefined
      // Without room the drop may still succeed, and otherwise says why not.
      await emptied?.catch(() => {})
      const statement = `drop database if exists ${name} with (force)`
      // The connection may have been lost meanwhile.
      await admin.query(statement).catch(() => runAnew(statement, () => connectFor(purpose, databaseUrl)))
      // A lost connection has ended.
      await admin.end().catch(() => {})
    }
    return {
      databaseUrl: url.href,
      explain,
      drop: () => {
        dropped ??= drop()
        return dropped
      },
    }
  } catch (error) {
    await admin.end()
    throw error
  }
}

/**
 * Takes 8 MB of the server's disk, which `close all` frees, and the end of the connection. To drop a database needs a
 * checkpoint, and one that finds no room at all ends the whole server; nor has any statement room then, as to read a page may
 * need to write another, which a new database has in memory alone. What frees room must not need any: the rows of a cursor
 * that outlives its transaction are a temporary file.
 */
async function reserveRoom(admin: pg.Client): Promise<void> {
  await admin.query(`set work_mem = '64kB'; set temp_tablespaces = ''`)
  try {
    await admin.query(
      `declare reserve cursor with hold for select repeat('-', 8000) from generate_series(1, 1000)`,
    )
    // Reading makes it write the last of them, which closing would otherwise do.
    await admin.query('fetch reserve')
  } catch (error) {
    // Where the operator's temp_file_limit is smaller, a scratch database works as well until the disk is full.
    if ((error as pg.DatabaseError).code !== '53400') throw error
  }
}

/** Empties the database, the largest table first, so that its drop has room on a disk that is full. */
async function makeRoom(purpose: Purpose, url: string): Promise<void> {
  const client = await connectFor(purpose, url)
  try {
    const { rows } = await client.query(
      `select format('drop table %I.%I cascade', n.nspname, c.relname) as statement
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
          and c.relkind in ('r', 'p') and not c.relispartition
        order by pg_total_relation_size(c.oid) desc`,
    )
    for (const { statement } of rows) await client.query(statement)
  } finally {
    await client.end()
  }
}

/** Seconds for a server to come back that its full disk has ended. */
const patience = 30

async function runAnew(statement: string, connect: () => Promise<pg.Client>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const client = await connect()
      return void (await client.query(statement).finally(() => client.end()))
    } catch (error) {
      if (attempt === patience || classifyDatabaseError(error) !== 'unreachable') throw error
      await sleep(1000)
    }
  }
}

/** The lock ends with the connection, and so with the process. */
async function beOnlyDrill(admin: pg.Client, prefix: string): Promise<void> {
  const { rows } = await admin.query('select pg_try_advisory_lock($1, $2) as locked', [
    ...advisoryLocks.drill,
  ])
  if (!rows[0].locked) throw new SetupError('Another svc db drill works on this database: wait for it to end')
  const left = await admin.query('select datname from pg_database where starts_with(datname, $1)', [prefix])
  for (const { datname } of left.rows)
    await admin.query(`drop database if exists ${id(datname)} with (force)`)
}
