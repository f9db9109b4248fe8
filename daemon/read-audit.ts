import type { Endpoint } from '../src/core/endpoint.ts'

/** Most readings remembered at once, for each entry; of the oldest a second audit entry may be left early. */
const most = 10_000

/** Where in a list one is; going on in it is no other reading. */
const places = ['page', 'limit', 'cursor', 'after', 'skipCount']

/** What was asked for, as the audit entry of a reading says it. */
export function readAuditDetails(entry: Endpoint, query: unknown): Record<string, unknown> {
  const asked = Object.entries((query ?? {}) as Record<string, unknown>)
  const filters = asked.filter(([key, value]) => value !== undefined && !places.includes(key))
  return { path: entry.path, ...(filters.length > 0 && { query: Object.fromEntries(filters) }) }
}

/** Undefined for an entry whose readings leave nothing in the audit log. */
export function readAuditThrottle(entry: Endpoint): Readings | undefined {
  const { audit } = entry
  const minutes = audit && 'action' in audit ? audit.quietFor : undefined
  return minutes === undefined ? undefined : new Readings(entry, minutes * 60_000)
}

/**
 * Which readings of an entry were audited a short while ago. A page that refreshes itself would otherwise fill
 * the log it shows. Kept in this process only: another one, or the next, leaves an entry of its own.
 */
class Readings {
  readonly #entry: Endpoint
  readonly #quietMs: number
  readonly #seen = new Map<string, number>()

  constructor(entry: Endpoint, quietMs: number) {
    this.#entry = entry
    this.#quietMs = quietMs
  }

  get size(): number {
    return this.#seen.size
  }

  /** Whether this reading has to leave an audit entry; then it counts as audited. */
  isNew(caller: string, { params, query }: { params: unknown; query: unknown }, now: number): boolean {
    if (this.#quietMs === 0) return true
    const asked = readAuditDetails(this.#entry, query)
    // A page that shows the last hours says another time whenever it asks.
    const key = JSON.stringify([caller, params, asked]).replaceAll(/(\d{4}-\d\d-\d\dT\d\d)[:\d.]+Z/g, '$1')
    const last = this.#seen.get(key)
    if (last !== undefined && now - last < this.#quietMs) return false
    this.#seen.delete(key)
    this.#seen.set(key, now)
    const [oldest] = this.#seen.keys()
    if (this.#seen.size > most && oldest !== undefined) this.#seen.delete(oldest)
    return true
  }
}
