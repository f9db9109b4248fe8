import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { inject } from 'vitest'

/** A database for one test. Closing it twice closes it once. */
export type PostgresDatabase = { url: string; close(): Promise<void> }

let administrator: Promise<pg.Client> | undefined

/** Runs statements as the administrator of the test server, in a connection that is kept as long as the process. */
export async function administer<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  administrator ??= connect('postgres')
  return work(await administrator)
}

async function connect(database: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: urlOf(database), application_name: 'test' })
  // The server ends before this process does.
  client.on('error', () => {})
  await client.connect()
  return client
}

function urlOf(database: string): string {
  const url = new URL(inject('postgresUrl'))
  url.pathname = `/${database}`
  return url.href
}

/** The same database over TCP, also through another port: for whoever stands in between. */
export function overTcp(databaseUrl: string, port?: number): URL {
  const url = new URL(databaseUrl)
  url.searchParams.delete('host')
  if (port !== undefined) url.port = String(port)
  return url
}

/** A database that has no table. */
export async function emptyDatabase(): Promise<PostgresDatabase> {
  const name = await createDatabase('template0')
  return { url: urlOf(name), close: () => dropDatabase(name) }
}

/** Has a connection of its own, whose first statements would take longer than all later ones. */
type Reusable = { name: string; client: pg.Client }

/** Databases of this process that no test uses. */
const free: Reusable[] = []
/** By URL, those that one does. */
const taken = new Map<string, Reusable>()

/** Runs statements in a database of `migratedDatabase`. */
export const runIn = (url: string, statements: string) => taken.get(url)!.client.query(statements)

/**
 * A database with every table, none of which has rows. To create and to drop one takes longer than most tests: one whose
 * tables were only written to is emptied, and taken again.
 */
export async function migratedDatabase(
  migrateAt: (url: string) => Promise<unknown>,
): Promise<PostgresDatabase> {
  const { shape } = await templateOf(migrateAt)
  const database = free.pop() ?? (await newReusable())
  const url = urlOf(database.name)
  taken.set(url, database)
  const release = async () => {
    taken.delete(url)
    if (await hasEmptied(database.client, shape)) return void free.push(database)
    await database.client.end().catch(() => {})
    await dropDatabase(database.name)
  }
  let released: Promise<void> | undefined
  const close = () => {
    // A second release would empty it under the test that has it by then, and give it to two.
    released ??= release()
    return released
  }
  return { url, close }
}

async function newReusable(): Promise<Reusable> {
  const name = await createDatabase('migrated')
  return { name, client: await connect(name) }
}

async function createDatabase(template: string): Promise<string> {
  const name = `test_${randomBytes(8).toString('hex')}`
  // In memory a copy of the files is made faster than a log of their pages.
  await administer((client) =>
    client.query(`create database ${name} template ${template} strategy file_copy`),
  )
  return name
}

async function dropDatabase(name: string): Promise<void> {
  await administer((client) => client.query(`drop database if exists ${name} with (force)`))
}

let template: Promise<{ shape: string }> | undefined

/** Created once in a run, by whichever test process comes first. */
function templateOf(migrateAt: (url: string) => Promise<unknown>): Promise<{ shape: string }> {
  template ??= administer(async (client) => {
    await client.query('select pg_advisory_lock(1)')
    try {
      const made = await client.query(`select 1 from pg_database where datname = 'migrated'`)
      if (made.rowCount === 0) {
        await dropDatabase('unmigrated')
        await client.query('create database unmigrated template template0')
        await migrateAt(urlOf('unmigrated'))
        await client.query('alter database unmigrated rename to migrated')
      }
    } finally {
      // The connection stays, and whoever waits for it would wait for ever.
      await client.query('select pg_advisory_unlock(1)')
    }
    const first = await newReusable()
    free.push(first)
    return { shape: await shapeOf(first.client) }
  })
  return template
}

/** Whether the database is as a new one now; otherwise its tables, settings or statistics were changed, or it has grown. */
async function hasEmptied(client: pg.Client, shape: string): Promise<boolean> {
  try {
    if (!(await isLeft(client)) || (await shapeOf(client)) !== shape) return false
    await client.query(empty)
    // What the tests before did is not what the database of the next one went through: svc doctor looks at these counts.
    await client.query('select pg_stat_force_next_flush()')
    await client.query('select pg_stat_reset()')
    return true
  } catch {
    // It was dropped, or a test has cut this connection too.
    return false
  }
}

/** Whether nobody is connected any more: a service that a test has left running would go on with the rows of the next. */
async function isLeft(client: pg.Client): Promise<boolean> {
  for (let tries = 0; tries < 20; tries += 1) {
    const { rowCount } = await client.query(`
      select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
    if (rowCount === 0) return true
    // The server takes a moment to end a connection that was closed.
    await sleep(10)
  }
  return false
}

/** Everything of a database that stays when its rows are deleted: a change of it adds or removes rows of the catalog. */
async function shapeOf(client: pg.Client): Promise<string> {
  const parts = catalogs.map(
    (table) => `(select concat(count(*), ' ', max(xmin::text::bigint)) from ${table})`,
  )
  const { rows } = await client.query(`
    select concat_ws(',', ${parts.join(', ')},
      (select concat_ws(' ', datallowconn, datconnlimit, datacl) from pg_database where datname = current_database()),
      (select count(*) from pg_db_role_setting s join pg_database d on d.oid = setdatabase where datname = current_database()),
      (select md5(string_agg(m::text, ',' order by m::text)) from svc_migrations m)) as shape,
      (select sum(pg_relation_size(oid)) > 20000000 from pg_class where relnamespace = 'public'::regnamespace) as is_large`)
  return rows[0].is_large ? 'large' : rows[0].shape
}

const catalogs = [
  'pg_class',
  'pg_attribute',
  'pg_constraint',
  'pg_index',
  'pg_trigger',
  'pg_namespace',
  'pg_proc',
  'pg_extension',
  'pg_statistic',
]

const empty = `
  do $$
  declare found regclass;
  begin
    set local session_replication_role = replica;
    for found in
      select oid from pg_class
      where relkind = 'r' and relnamespace = 'public'::regnamespace
        and relname <> 'svc_migrations' and pg_relation_size(oid) > 0
    loop
      execute format('delete from %s', found);
    end loop;
    insert into probes values (1, '');
    for found in select oid from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace loop
      perform setval(found, 1, false);
    end loop;
  end $$`
