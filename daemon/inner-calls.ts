import { recordAudit } from '../src/audit/outbox.ts'
import type { CallContext, InnerCalls } from '../src/configuration/ports.ts'
import type { RawInput } from '../src/core/client.ts'
import type { Endpoint } from '../src/core/endpoint.ts'
import { type Fault, invalid } from '../src/core/errors.ts'
import { isShared, type ProcessLimit, type SharedLimit } from '../src/core/limits.ts'
import type { QuotaOwner } from '../src/core/quotas.ts'
import type { AuditFacts, Caller, Handler } from '../src/handler.ts'
import { accessInFiles, checkAccess } from '../src/identity/rules.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { scopeOfCaller } from './actor.ts'
import { auditEntryOf, successEntry } from './auditing.ts'
import { type AnyCall, type AnyEndpoint, type AnyPreparation, stepsOf } from './pipeline.ts'
import type { QuotaCheck } from './quotas.ts'
import { partsParserOf } from './request-parser.ts'
import type { SharedLimiter } from './shared-limiter.ts'

/**
 * Endpoints, called within a transaction of another: with the same permission check, parsing, handler, quota and audit entry
 * as by their route, and with the limits of letters. Other rate limits and Idempotency-Keys are those of the request that
 * calls them.
 */
export function innerCalls(on: {
  storage: Storage
  quotas: QuotaCheck
  sharedLimiter: Pick<SharedLimiter, 'takeWithin'>
  mfaOn: boolean
  /** Asked when it is called: the handlers that call others are among them. */
  handlerOf: (entry: Endpoint) => Handler<never>
}): InnerCalls {
  const parsers = new WeakMap<Endpoint, ReturnType<typeof partsParserOf>>()
  const check = (entry: Endpoint, caller: Caller) => {
    if (entry.access.who !== 'user') throw new Error(`${entry.path} is not for users`)
    checkAccess(accessInFiles(entry.access), caller, on.mfaOn)
  }

  function parse(entry: Endpoint, { params = {}, query = {}, body }: RawInput) {
    const parser = parsers.get(entry) ?? partsParserOf(entry)
    parsers.set(entry, parser)
    const faults: Fault[] = []
    const parsed = parser({ params, query, body }, faults)
    if (faults.length > 0) throw invalid(faults)
    return parsed
  }

  async function call(tx: Db, context: CallContext, entry: Endpoint, input: RawInput) {
    const { admitted, caller, ip, userAgent, now, details, isRehearsal } = context
    if (!isRehearsal) check(entry, admitted)
    const { prepare, run } = stepsOf(on.handlerOf(entry) as unknown as Handler<AnyEndpoint>)
    const facts: AuditFacts = { details }
    const innerCall = {
      ...parse(entry, input),
      caller,
      ip,
      userAgent,
      now,
      scope: scopeOfCaller(caller),
      isLocal: () => false,
      isRehearsal,
      cookies: {},
      // Reads see what this transaction has changed.
      storage: { ...on.storage, read: tx, heavy: tx, readQueries: tx },
      db: tx,
      note: (more: AuditFacts) =>
        void Object.assign(facts, more, { details: { ...facts.details, ...more.details } }),
      // A read query may take long, which a transaction must not: what it would answer is left to the background.
      readQuery: async () => undefined,
      quota: async (owner: QuotaOwner) => {
        const displaced = await on.quotas.checkWithin(tx, entry.quota!, owner, now)
        if (displaced.length > 0) innerCall.note({ details: { displaced } })
      },
      gone: () => new AbortController().signal,
      // What is rolled back sends no letter, and uses up no limit of letters.
      limit: async (name: SharedLimit | ProcessLimit, key: string) => {
        if (!isShared(name)) throw new Error(`${entry.path} has a rate limit of each process`)
        if (!isRehearsal) await on.sharedLimiter.takeWithin(tx, name, key)
      },
      claim: async () => undefined,
      // What it would say is said later: an issuer is asked with the first token, an address with the first delivery.
      outside: async () => undefined,
    }
    const ready = await prepare?.(innerCall as unknown as AnyPreparation)
    const reply = await run(innerCall as unknown as AnyCall, ready as never)
    const audited = successEntry(entry, innerCall, reply, facts, caller, innerCall, now)
    if (audited) await recordAudit(tx, audited)
    return reply as Record<string, unknown>
  }

  return {
    check,
    parse,
    call,
    async record(tx, { caller, ip, userAgent, now, details }, { action, resource, orgId, id, name }) {
      const facts = { orgId, resourceId: id, resourceName: name, details }
      await recordAudit(tx, auditEntryOf({ action, resource }, facts, caller, { ip, userAgent }, now))
    },
  }
}
