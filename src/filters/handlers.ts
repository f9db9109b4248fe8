import { withoutUndefined } from '../core/json.ts'
import { newId } from '../core/new-id.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { type HandlersOf, inSteps, type Preparation } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { difference } from '../tenancy/rules.ts'
import { checkOrg, scopeWithin } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { fields } from './fields/contract.ts'
import { checkConditions } from './rules.ts'
import { changedFields, makeFilter } from './saved/rules.ts'
import * as saved from './saved/store.ts'
import { previewFilter } from './store.ts'

/** Hooks of features that depend on saved filters, called within the transaction of a change; they may refuse it. */
export type FilterHooks<Answer> = {
  /** Called before the transaction of a change of conditions: evaluates the new conditions. */
  prepareChange(
    call: Pick<Preparation<typeof contract.filters.update>, 'storage' | 'readQuery' | 'scope' | 'now'>,
    filter: contract.SavedFilter,
  ): Promise<Answer | undefined>
  /** Called after the conditions were saved. */
  onChange(
    db: Db,
    scope: Scope,
    filter: contract.SavedFilter,
    answer: Answer | undefined,
    now: Instant,
  ): Promise<void>
  /** Called before the filter is deleted. @throws conflict while it is in use */
  onRemove(db: Db, scope: Scope, filter: contract.SavedFilter): Promise<void>
}

export const filterHandlers = <Answer>(use: FilterHooks<Answer>): HandlersOf<typeof contract.filters> => ({
  async list({ db, readQuery, scope, query }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    const page = await readQuery((on) => saved.listFilters(on, scope, query))
    return { ...page, total: page.pagination.total }
  },

  async create({ db, scope, body, caller, now, quota }) {
    checkConditions(body.conditions)
    // In organization scope body.orgId is ignored.
    const orgId = scope.kind === 'organization' ? scope.orgId : await resolveOrg(db, scope, body.orgId)
    const filter = makeFilter(body, { id: newId(), orgId, by: caller.id, now })
    await quota({ orgId })
    await saved.insertFilter(db, filter)
    return filter
  },

  fields: async () => ({ data: fields.map(({ aliases, ...field }) => field) as contract.FilterField[] }),

  show: ({ db, scope, params }) => saved.getFilter(db, scope, params.id),

  update: inSteps({
    async prepare(call) {
      const { conditions } = call.body
      if (!conditions) return undefined
      checkConditions(conditions)
      const filter = await saved.getFilter(call.storage.read, call.scope, call.params.id)
      return use.prepareChange(call, { ...filter, conditions })
    },
    async run({ db, scope, params, body, now, note }, answer) {
      const before = await saved.getFilter(db, scope, params.id)
      const change = { ...withoutUndefined(body), updatedAt: now }
      await saved.changeFilter(db, scope, before.id, change)
      const after = { ...before, ...change }
      if (body.conditions) await use.onChange(db, scope, after, answer, now)
      note({ ...difference(before, after), details: { changedFields: changedFields(before, after) } })
      return after
    },
  }),

  async remove({ db, scope, params }) {
    const filter = await saved.getFilter(db, scope, params.id)
    await use.onRemove(db, scope, filter)
    await saved.removeFilter(db, scope, filter.id)
    return filter
  },

  // Devices are read before the transaction of the audit entry: a large fleet takes a while.
  preview: inSteps({
    async prepare({ storage, readQuery, scope, body, now }) {
      const seen = await scopeWithin(storage.read, scope, body.orgId)
      checkConditions(body.conditions)
      return readQuery((on) => previewFilter(on, seen, body.conditions, { limit: body.limit, now }))
    },
    async run({ note, body: { orgId } }, preview) {
      note({ ...(orgId !== undefined && { orgId }), details: { totalCount: preview.data.totalCount } })
      return preview
    },
  }),

  savedPreview: inSteps({
    async prepare({ storage, readQuery, scope, params, query, now }) {
      const { orgId, limit } = query
      const filter = await saved.getFilter(storage.read, scope, params.id)
      const seen = await scopeWithin(storage.read, scope, orgId)
      checkConditions(filter.conditions, 'conditions')
      const preview = await readQuery((on) => previewFilter(on, seen, filter.conditions, { limit, now }))
      return { filter, preview }
    },
    async run({ note }, { filter, preview }) {
      const { totalCount } = preview.data
      note({ orgId: filter.orgId, resourceName: filter.name, details: { totalCount } })
      return preview
    },
  }),
})
