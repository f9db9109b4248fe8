import type pg from 'pg'
import { SetupError } from '../../core/errors.ts'

const rounds = 4

/**
 * Refuses a connection pooler that reassigns sessions between transactions (PgBouncer in transaction or statement
 * mode). There, settings, prepared statements, LISTEN and the migration lock pass to the next client. The sign of it:
 * a connection's session changes, or another connection has the same one.
 * @throws SetupError
 */
export async function assertNoTransactionPooler(
  one: pg.ClientBase,
  other: pg.ClientBase,
  setting: string,
): Promise<void> {
  const own = await sessionOf(one)
  for (let round = 0; round < rounds; round++) {
    await other.query('begin')
    try {
      if ((await sessionOf(other)) === own || (await sessionOf(one)) !== own) throw refusal(setting)
    } finally {
      await other.query('rollback')
    }
  }
}

async function sessionOf(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  return rows[0]!.pid
}

const refusal = (setting: string): SetupError =>
  new SetupError(
    `${setting} leads to a connection pooler that shares sessions (transaction mode): set DATABASE_DIRECT_URL to the address of ` +
      'PostgreSQL itself, beside DATABASE_URL, or set the pooler to session mode',
  )

/** @throws SetupError when both addresses do not lead to one database */
export async function assertSameDatabase(one: pg.ClientBase, other: pg.ClientBase): Promise<void> {
  const [own, its] = await Promise.all([one, other].map(placeOf))
  if (own === its) return
  throw new SetupError(
    'DATABASE_URL and DATABASE_DIRECT_URL lead to two databases: both have to lead to the same one',
  )
}

/** The number of the database, and when its server was started, in a form that no time zone of a role changes. */
async function placeOf(client: pg.ClientBase): Promise<string> {
  const { rows } = await client.query<{ place: string }>(
    `select oid || ' ' || extract(epoch from pg_postmaster_start_time()) as place from pg_database where datname = current_database()`,
  )
  return rows[0]!.place
}
