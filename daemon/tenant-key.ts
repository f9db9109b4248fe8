import type { Caller } from '../src/handler.ts'
import { prepared } from '../src/storage/dialect.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { scopeOfCaller } from './actor.ts'

const maxKnown = 10_000

const partnerOf = prepared((db, p: { id: string }) =>
  db.selectFrom('organizations').select('partner_id').where('id', '=', p.id),
)

/**
 * Names the tenant whose share of the service a caller uses: a partner together with all its organizations, since a partner
 * can create as many as it likes.
 */
export class TenantKeys {
  readonly #db: Db
  /** By organization, which never moves to another partner. */
  readonly #ofOrgs = new Map<string, string>()

  constructor(storage: Pick<Storage, 'read'>) {
    this.#db = storage.read
  }

  of(caller: Caller): string | Promise<string> {
    if (caller.kind === 'agent') return `partner ${caller.partnerId}`
    const scope = scopeOfCaller(caller)
    if (scope.kind === 'system') return 'system'
    if (scope.kind === 'partner') return `partner ${scope.partnerId}`
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
