import type { Endpoint } from '../src/core/endpoint.ts'

/** Most remembered readings of each endpoint; for dropped ones a second audit entry may be recorded early. */
const maxRemembered = 10_000

/** Pagination parameters: further pages are the same reading. */
const places = ['page', 'limit', 'cursor', 'after', 'skipCount']

/** The details of the audit entry of a reading. */
export function readAuditDetails(entry: Endpoint, query: unknown): Record<string, unknown> {
  const asked = Object.entries((query ?? {}) as Record<string, unknown>)
  const filters = asked.filter(([key, value]) => value !== undefined && !places.includes(key))
  return { path: entry.path, ...(filters.length > 0 && { query: Object.fromEntries(filters) }) }
}

/** Undefined for endpoints whose readings are not audited. */
export function readAuditThrottle(entry: Endpoint): Readings | undefined {
  const { audit } = entry
  const minutes = audit && 'action' in audit ? audit.quietFor : undefined
  return minutes === undefined ? undefined : new Readings(entry, minutes * 60_000)
}

/**
 * Recently audited readings of an endpoint. A page that refreshes itself would otherwise fill
 * the log it shows. In memory of this process only: other processes record their own entry.
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

  /** Whether this reading needs an audit entry; then it counts as audited. */
  isNew(caller: string, { params, query }: { params: unknown; query: unknown }, now: number): boolean {
    if (this.#quietMs === 0) return true
    const asked = readAuditDetails(this.#entry, query)
    // A page of the last hours sends another time with each refresh, so minutes are ignored.
    const key = JSON.stringify([caller, params, asked]).replaceAll(/(\d{4}-\d\d-\d\dT\d\d)[:\d.]+Z/g, '$1')
    const last = this.#seen.get(key)
    if (last !== undefined && now - last < this.#quietMs) return false
    this.#seen.delete(key)
    this.#seen.set(key, now)
    const [oldest] = this.#seen.keys()
    if (this.#seen.size > maxRemembered && oldest !== undefined) this.#seen.delete(oldest)
    return true
  }
}
