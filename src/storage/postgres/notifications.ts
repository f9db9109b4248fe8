import { sql } from 'kysely'
import type { Db, Notifications } from '../db.ts'
import { PostgresConnection } from './connection.ts'

/** Class of the advisory locks that show other processes which channels have a listener. */
const lockClass = 1937138540
const reconnectMs = 1000
/** Interval between pings of a listener's connection, which is cut if an answer has been missing for half of it. */
const pingMs = 10_000
/** Time limit for closing the connection. */
const endMs = 500

/**
 * Lets the server end the session of a process that was frozen: the kernel answers for it, so its locks would stay for ever.
 * Servers before Postgres 14 do not have the setting.
 */
const endWhenFrozen = (client: PostgresConnection, ms: number) =>
  client.query(`select set_config(name, '${ms}', false) from pg_settings where name = 'idle_session_timeout'`)

/** LISTEN and NOTIFY. A listening process holds a lock on its channel as long as its session lasts. */
export function postgresNotifications(
  databaseUrl: string,
  db: Db,
  onError: (error: Error) => void = () => {},
): Notifications {
  return {
    listen: (channel, on) => listen(databaseUrl, channel, on, onError),
    async hasListener(channel) {
      const found = await sql<{ found: number }>`
        select 1 as found from pg_locks
        where locktype = 'advisory' and classid = ${lockClass}::oid and objid = hashtext(${channel})::oid
        and objsubid = 2 and granted
        and database = (select oid from pg_database where datname = current_database())
        limit 1`.execute(db)
      return found.rows.length > 0
    },
    async send(tx, channel, message) {
      await sql`select pg_notify(${channel}, ${message})`.execute(tx)
    },
  }
}

type Listener = Parameters<Notifications['listen']>[1]

async function listen(
  databaseUrl: string,
  channel: string,
  { onMessage, onReconnect }: Listener,
  onError: (error: Error) => void,
): Promise<() => Promise<void>> {
  let closed = false
  let client: PostgresConnection | undefined
  let ping: NodeJS.Timeout | undefined
  let reconnect: NodeJS.Timeout | undefined

  async function open(): Promise<void> {
    const next = new PostgresConnection({
      connectionString: databaseUrl,
      application_name: 'svc signals',
      keepAlive: true,
      keepAliveInitialDelayMillis: 5000,
      connectionTimeoutMillis: 10_000,
    })
    next.on('error', onError)
    next.on('notification', ({ payload }) => onMessage(payload ?? ''))
    await next.connect()
    next.on('end', reopenLater)
    client = next
    clearInterval(ping)
    // A silently lost database is noticed within half a minute instead of two hours; so is a lost listener.
    ping = setInterval(() => {
      if (next.silentMs(performance.now()) > pingMs / 2) next.cut('the listener is not answered')
      // A lost connection ends, which opens the next one.
      else next.query('select 1').catch(() => {})
    }, pingMs).unref()
    await next.query(
      'set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 2',
    )
    await endWhenFrozen(next, 3 * pingMs)
    await next.query(`listen ${next.escapeIdentifier(channel)}`)
    await next.query('select pg_advisory_lock_shared($1, hashtext($2))', [lockClass, channel])
  }

  function reopenLater(): void {
    client = undefined
    if (closed || reconnect) return
    reconnect = setTimeout(() => {
      reconnect = undefined
      open().then(onReconnect, (error: Error) => {
        onError(error)
        reopenLater()
      })
    }, reconnectMs)
    reconnect.unref()
  }

  await open()
  return async () => {
    closed = true
    clearTimeout(reconnect)
    clearInterval(ping)
    const last = client
    const cutTimer = setTimeout(() => last?.cut('the service ends'), endMs)
    // A connection that is lost already has ended.
    await last?.end().catch(() => {})
    clearTimeout(cutTimer)
  }
}
