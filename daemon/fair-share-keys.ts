import type { Scope } from '../src/core/scope.ts'
import type { Caller } from '../src/handler.ts'
import type { FairShareKey } from '../src/storage/fair-queue.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { prepared } from '../src/storage/query/prepared.ts'
import { networkOf } from './address.ts'
import { contextOf } from './idempotency.ts'

const maxKnown = 10_000

const partnerOf = prepared((db, p: { id: string }) =>
  db.selectFrom('organizations').select('partner_id').where('id', '=', p.id),
)

export const agentFairShareKey = ({
  partnerId,
  orgId,
  deviceId,
}: {
  partnerId: string
  orgId: string
  deviceId: string
}): FairShareKey => [`partner ${partnerId}`, orgId, deviceId]

/**
 * Finds the key under which the requests of a caller take their turns. The largest group is the tenant: a partner
 * together with all its organizations, since a partner can create as many as it likes. All callers who are not signed
 * in are one group.
 */
export class FairShareKeys {
  readonly #db: Db
  /** Tenants by organization id; an organization never moves to another partner. */
  readonly #ofOrgs = new Map<string, string>()

  constructor(storage: Pick<Storage, 'read'>) {
    this.#db = storage.read
  }

  async of(caller: Caller, ip: string): Promise<FairShareKey> {
    if (caller.kind === 'nobody') return ['nobody', networkOf(ip)]
    if (caller.kind === 'agent') return agentFairShareKey(caller)
    return [await this.#tenantOf(caller.scope), contextOf(caller.scope), caller.id]
  }

  #tenantOf(scope: Scope): string | Promise<string> {
    if (scope.kind !== 'organization') return contextOf(scope)
    return this.#ofOrgs.get(scope.orgId) ?? this.#find(scope.orgId)
  }

  async #find(orgId: string): Promise<string> {
    const [row] = await partnerOf(this.#db, { id: orgId })
    if (!row) return `organization ${orgId}`
    const tenant = `partner ${row.partner_id}`
    if (this.#ofOrgs.size >= maxKnown) this.#ofOrgs.clear()
    this.#ofOrgs.set(orgId, tenant)
    return tenant
  }
}
