import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { PostgresConnection } from './connection.ts'

/** Time limit for an answer. */
const timeoutMs = 3000
const closeMs = 500

const change = 'update probes set at = now()::text where id = 1'
/**
 * An update of an existing row needs no free space. A sort that exceeds its memory does: it writes temporary files of
 * one mebibyte beside the tables, which are freed at once and leave nothing in a log or table.
 */
const room = `select count(wide) from (
  select repeat('x', 8192) as wide from generate_series(1, 128) as n order by n desc) as sorted`
/** In a transaction, so that a pooler may give each check another session. */
const begin = `begin; set local work_mem = '64kB'; set local temp_tablespaces = ''`

/**
 * Checks, on a connection of its own that no request can use, whether the database accepts a change and has free
 * space. A primary that became a replica, and one with a full disk, still answer queries.
 */
export class HealthProbe {
  readonly #databaseUrl: string
  #client: Promise<PostgresConnection> | undefined
  #checking: Promise<void> | undefined

  constructor(databaseUrl: string) {
    this.#databaseUrl = databaseUrl
  }

  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined
    })
    return this.#checking
  }

  /** Does not wait for a database that does not answer. */
  async close(): Promise<void> {
    const late = sleep(closeMs, undefined, { ref: false })
    // Whoever asked for the check gets its error.
    if (this.#checking) await Promise.race([this.#checking.catch(() => {}), late])
    this.#client?.then(end, () => {})
    this.#client = undefined
  }

  async #check(): Promise<void> {
    this.#client ??= connected(this.#databaseUrl)
    const client = await this.#client.catch((error) => {
      this.#client = undefined
      throw error
    })
    try {
      for (const text of [begin, change, room, 'commit'])
        await client.query({ text, query_timeout: timeoutMs } as pg.QueryConfig)
    } catch (error) {
      this.#client = undefined
      end(client)
      throw error
    }
  }
}

async function connected(databaseUrl: string): Promise<PostgresConnection> {
  const client = new PostgresConnection({
    connectionString: databaseUrl,
    application_name: 'svc readiness',
    connectionTimeoutMillis: timeoutMs,
  })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Does not wait for an answer: the database may be gone. */
function end(client: PostgresConnection): void {
  // A lost connection has ended.
  client.end().catch(() => {})
  setTimeout(() => client.cut('readiness asks anew'), 100).unref()
}
