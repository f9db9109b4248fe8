import type pg from 'pg'
import { Connection } from './postgres-connection.ts'

/** How long an answer takes at most. */
const mostMs = 3000

/**
 * Asks the database in a connection of its own, which no request can hold: whether it takes a change. A primary that
 * became a replica, and a disk that is full, still answer questions.
 */
export class Probe {
  readonly #databaseUrl: string
  #client: Promise<Connection> | undefined
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

  async close(): Promise<void> {
    await this.#checking?.catch(() => {})
    const client = await this.#client?.catch(() => undefined)
    this.#client = undefined
    if (client) end(client)
  }

  async #check(): Promise<void> {
    this.#client ??= connected(this.#databaseUrl)
    const client = await this.#client.catch((error) => {
      this.#client = undefined
      throw error
    })
    try {
      await client.query({
        text: 'update probes set at = now()::text where id = 1',
        query_timeout: mostMs,
      } as pg.QueryConfig)
    } catch (error) {
      this.#client = undefined
      end(client)
      throw error
    }
  }
}

async function connected(databaseUrl: string): Promise<Connection> {
  const client = new Connection({
    connectionString: databaseUrl,
    application_name: 'svc readiness',
    connectionTimeoutMillis: mostMs,
  })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Waits for no answer: there may be nobody to give one. */
function end(client: Connection): void {
  client.end().catch(() => {})
  setTimeout(() => client.cut('readiness asks anew'), 100).unref()
}
