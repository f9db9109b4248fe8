import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { AuditedResource } from '../core/schema.ts'
import type { Instant } from '../core/time.ts'
import type { Caller } from '../handler.ts'
import type { Db } from '../storage/open.ts'

/** Who calls, from where, and what each audit entry says besides. */
export type CallContext = {
  /** As they were admitted: what decides whether they may call an endpoint. */
  admitted: Caller
  /** The same, who sees the tenant that is configured alone. */
  caller: Caller
  ip: string
  userAgent: string | null
  now: Instant
  details: Record<string, unknown>
  /** The transaction is rolled back: permissions are not asked for, and nothing outside happens. */
  isRehearsal: boolean
}

/** Endpoints of the service, called within a transaction. */
export type InnerCalls = {
  /** @throws the refusal of a caller who may not call it */
  check(entry: Endpoint, caller: Caller): void
  /** @throws invalid_request with what the route would say of the form */
  parse(entry: Endpoint, input: RawInput): { body: unknown }
  /**
   * Does what the route of the entry does, without a request of its own: permission, parsing, handler and audit entry.
   * @throws what the route would answer
   */
  call(tx: Db, on: CallContext, entry: Endpoint, input: RawInput): Promise<Record<string, unknown>>
  /** Adds an audit entry of a change that no endpoint makes. */
  record(
    tx: Db,
    on: CallContext,
    about: {
      action: string
      resource: AuditedResource
      orgId: string | null
      id: string
      name: string
    },
  ): Promise<void>
}
