import { sql } from 'kysely'
import pg from 'pg'
import type { Db, Signals } from './db.ts'

/** Class of the advisory locks by which others see who listens. */
const lockClass = 1937138540
const againMs = 1000

/** LISTEN and NOTIFY. A process that listens holds a lock on its channel for as long as its session lasts. */
export function signalsOn(databaseUrl: string, db: Db, onError: (error: Error) => void = () => {}): Signals {
  return {
    listen: (channel, on) => listen(databaseUrl, channel, on, onError),
    async isHeard(channel) {
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

type Listener = Parameters<Signals['listen']>[1]

async function listen(
  databaseUrl: string,
  channel: string,
  { heard, missed }: Listener,
  onError: (error: Error) => void,
): Promise<() => Promise<void>> {
  let closed = false
  let client: pg.Client | undefined
  let again: NodeJS.Timeout | undefined

  async function open(): Promise<void> {
    const next = new pg.Client({
      connectionString: databaseUrl,
      application_name: 'svc signals',
      keepAlive: true,
      connectionTimeoutMillis: 10_000,
    })
    next.on('error', onError)
    next.on('notification', ({ payload }) => heard(payload ?? ''))
    await next.connect()
    next.on('end', reopenLater)
    client = next
    // A machine that is gone without a word is noticed in a quarter of a minute, not in two hours.
    await next.query(
      'set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 2',
    )
    await next.query(`listen ${next.escapeIdentifier(channel)}`)
    await next.query('select pg_advisory_lock_shared($1, hashtext($2))', [lockClass, channel])
  }

  function reopenLater(): void {
    client = undefined
    if (closed || again) return
    again = setTimeout(() => {
      again = undefined
      open().then(missed, (error: Error) => {
        onError(error)
        reopenLater()
      })
    }, againMs)
    again.unref()
  }

  await open()
  return async () => {
    closed = true
    clearTimeout(again)
    await client?.end().catch(() => {})
  }
}
