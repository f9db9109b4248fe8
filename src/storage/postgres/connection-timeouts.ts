import { sql } from 'kysely'
import type { AnyDb } from '../columns.ts'

/** In milliseconds, and those of TCP in seconds and a count. */
const settings: Readonly<Record<string, string>> = {
  client_connection_check_interval: '2000',
  idle_session_timeout: '60000',
  idle_in_transaction_session_timeout: '60000',
  tcp_keepalives_idle: '15',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
}

/**
 * Lets the server notice within seconds that this process was killed or its machine is gone, and within a minute that it was
 * frozen: otherwise it would keep its locks. Servers before Postgres 14 do not have all settings.
 */
export async function setConnectionTimeouts(db: AnyDb): Promise<void> {
  const given = Object.entries(settings).map(([name, value]) => sql`(${name}, ${value})`)
  await sql`select set_config(s.name, given.value, false)
    from pg_settings s join (values ${sql.join(given)}) as given (name, value) on given.name = s.name`.execute(
    db,
  )
}
