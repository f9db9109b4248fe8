import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { PostgresConnection } from './connection.ts'

/** How long an answer takes at most. */
const mostMs = 3000
const closeMs = 500

const change = 'update probes set at = now()::text where id = 1'
/**
 * A change of a row that is there needs no room. What does not fit in memory is sorted in files, beside the tables: a
 * mebibyte that is given back at once, and of which no log and no table keeps anything.
 */
const room = `select count(wide) from (
  select repeat('x', 8192) as wide from generate_series(1, 128) as n order by n desc) as sorted`
const settings = `set work_mem = '64kB'; set temp_tablespaces = ''`

/**
 * Asks the database in a connection of its own, which no request can hold: whether it takes a change, and
 * whether there is room for more. A primary that became a replica, and a disk that is full, still answer questions.
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

  /** A database that says nothing is not waited for. */
  async close(): Promise<void> {
    const late = sleep(closeMs, undefined, { ref: false })
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
      for (const text of [change, room]) await client.query({ text, query_timeout: mostMs } as pg.QueryConfig)
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
    connectionTimeoutMillis: mostMs,
  })
  client.on('error', () => {})
  await client.connect()
  await client.query(settings)
  return client
}

/** Waits for no answer: there may be nobody to give one. */
function end(client: PostgresConnection): void {
  client.end().catch(() => {})
  setTimeout(() => client.cut('readiness asks anew'), 100).unref()
}
