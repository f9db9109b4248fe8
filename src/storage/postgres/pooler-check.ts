import type pg from 'pg'
import { SetupError } from '../../core/errors.ts'

const rounds = 4

/**
 * Refuses a connection pooler that reassigns sessions between transactions (PgBouncer in transaction or statement
 * mode). There, settings, prepared statements, LISTEN and the migration lock pass to the next client. The sign of it:
 * a connection's session changes, or another connection has the same one.
 * @throws SetupError
 */
export async function assertNoTransactionPooler(one: pg.ClientBase, other: pg.ClientBase): Promise<void> {
  const own = await sessionOf(one)
  for (let round = 0; round < rounds; round++) {
    await other.query('begin')
    try {
      if ((await sessionOf(other)) === own || (await sessionOf(one)) !== own) throw refusal()
    } finally {
      await other.query('rollback')
    }
  }
}

async function sessionOf(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  return rows[0]!.pid
}

const refusal = (): SetupError =>
  new SetupError(
    'DATABASE_URL leads to a connection pooler that shares sessions (transaction mode); svc has a pool of its own: ' +
      'connect to PostgreSQL itself, or set the pooler to session mode',
  )
