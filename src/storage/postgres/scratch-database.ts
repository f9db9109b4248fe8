import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { SetupError } from '../../core/errors.ts'
import { advisoryLocks } from '../advisory-locks.ts'

const { escapeIdentifier: id, escapeLiteral: text } = pg

type Purpose = 'rehearsal' | 'drill'

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
  purpose: Purpose,
): Promise<{ url: string; drop(): Promise<void> }> {
  const admin = await connectFor(purpose, databaseUrl)
  try {
    const { rows } = await admin.query(`
      select rolname as role, rolcreatedb or rolsuper as may, pg_database.oid, pg_encoding_to_char(encoding) as encoding,
        datcollate, datctype
      from pg_roles, pg_database where rolname = current_user and datname = current_database()`)
    const { role, may, oid, encoding, datcollate, datctype } = rows[0]
    if (!may)
      throw new SetupError(
        `The role ${role} may not create the database that the ${purpose} needs: run "alter role ${id(role)} createdb" as a superuser, and afterwards "alter role ${id(role)} nocreatedb".`,
      )
    const prefix = purpose === 'drill' ? `svc_drill_${oid}_` : 'svc_rehearsal_'
    if (purpose === 'drill') await beOnlyDrill(admin, prefix)
    const name = `${prefix}${randomBytes(6).toString('hex')}`
    await admin.query(
      `create database ${name} template template0 encoding ${text(encoding)} lc_collate ${text(datcollate)} lc_ctype ${text(datctype)}`,
    )
    const url = new URL(databaseUrl)
    url.pathname = `/${name}`
    let dropped: Promise<void> | undefined
    const drop = async () => {
      const statement = `drop database if exists ${name} with (force)`
      await admin.query(statement).catch(async () => {
        // The connection was lost meanwhile.
        const other = await connectFor(purpose, databaseUrl)
        await other.query(statement).finally(() => other.end())
      })
      await admin.end().catch(() => {})
    }
    return {
      url: url.href,
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
