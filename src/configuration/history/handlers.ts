import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { mayRead } from '../access.ts'
import { sections } from '../contract.ts'
import { Planner } from '../planner.ts'
import type { CallContext, InnerCalls } from '../ports.ts'
import { beginApply, findSet, type SetOwner } from '../store.ts'
import {
  type ConfiguredTenant,
  callerName,
  findConfiguredTenant,
  refusalFacts,
  rehearse,
  withScope,
} from '../tenant.ts'
import { configurationOf, recordApply } from './applied.ts'
import { idsToday, ofToday, withIdsToday } from './applied-changes.ts'
import type { configurationApplies, RollbackPlan } from './contract.ts'
import * as store from './store.ts'

type On = { calls: InnerCalls; cipher: Cipher }
type FoundApply = Awaited<ReturnType<typeof store.getApply>>

/** The tenant of an apply that the caller has found. */
const tenantOfApply = (db: Db, scope: Scope, { partnerId, orgId }: SetOwner): Promise<ConfiguredTenant> =>
  findConfiguredTenant(db, scope, orgId !== null ? { orgId } : scope.kind === 'system' ? { partnerId } : {})

/** Rolls an apply back, or plans to. */
async function rollBack(
  tx: Db,
  { calls, cipher }: On,
  { tenant, on, setId }: { tenant: ConfiguredTenant; on: CallContext; setId: string | undefined },
  { apply, nameChanges }: FoundApply,
  pruning: { prune: boolean; pruneLimit?: number | undefined },
  expected?: { version: string; plannedAt?: Instant | undefined },
) {
  const { id, set, canRollBack } = apply
  if (!canRollBack)
    throw new Problem(
      'conflict',
      'This apply cannot be rolled back: its values are not kept any more; apply an older revision of the files',
    )
  const changes = await store.changesOf(tx, cipher, tenant.scope, id)
  const today = idsToday(await store.restoredSince(tx, cipher, tenant.scope, tenant.owner, apply))
  const request = { set, document: {}, adopt: false, ...pruning }
  const run = new Planner(tx, {
    calls,
    cipher,
    on: withScope(on, tenant.scope),
    ...tenant,
    request,
    setId,
    rolledBack: changes.map((change) => withIdsToday(change, today)),
    nameChanges: nameChanges.map((change) => ofToday(change, today)),
  })
  const made = await run.plan(expected)
  return { made: { ...made, lost: [...run.lost] }, applied: run.applied, nameChanges: run.nameChanges }
}

export function configurationApplyHandlers(on: On): HandlersOf<typeof configurationApplies> {
  return {
    async list({ db, readQuery, scope, caller, query }) {
      const tenant = await findConfiguredTenant(db, scope, query)
      const readable = sections.filter((section) => mayRead(on.calls, section, caller))
      // It counts up to a thousand changes of each.
      return readQuery((on) =>
        store.listApplies(on, tenant.scope, { owner: tenant.owner, readable, page: query }),
      )
    },

    plan: inSteps<typeof configurationApplies.plan, RollbackPlan>({
      async prepare({ storage, scope, caller, params, body, now, ip, userAgent, limit, note }) {
        limit('CONFIG', 'id' in caller ? caller.id : ip)
        return rehearse(storage, async (tx) => {
          const found = await store.getApply(tx, scope, params.id)
          const { apply, owner } = found
          const tenant = await tenantOfApply(tx, scope, owner)
          note(refusalFacts(tenant, apply.set))
          const setId = await findSet(tx, tenant.scope, tenant.owner, apply.set)
          const context = { admitted: caller, caller, ip, userAgent, now, details: {}, isRehearsal: true }
          const { made } = await rollBack(tx, on, { tenant, on: context, setId }, found, body)
          return { ...made, plannedAt: now }
        })
      },
      run: async (_, plan) => plan,
    }),

    rollback: inSteps<typeof configurationApplies.rollback, void>({
      async prepare({ caller, ip, limit }) {
        limit('CONFIG', 'id' in caller ? caller.id : ip)
      },
      async run({ db, scope, caller, params, body, now, ip, userAgent, note }) {
        const found = await store.getApply(db, scope, params.id)
        const { apply: former, owner } = found
        const tenant = await tenantOfApply(db, scope, owner)
        const { set } = former
        note(refusalFacts(tenant, set))
        const { version, plannedAt, revision = null, ...pruning } = body
        const apply = { id: newId(), set, revision, rollsBack: former.id, by: callerName(caller), now }
        const details = { configuration: configurationOf(apply) }
        const setId = await beginApply(db, tenant.scope, tenant.owner, apply)
        const context = { admitted: caller, caller, ip, userAgent, now, details, isRehearsal: false }
        const expected = { version, plannedAt }
        const { made, ...done } = await rollBack(
          db,
          on,
          { tenant, on: context, setId },
          found,
          pruning,
          expected,
        )
        note(await recordApply(db, on.cipher, tenant, { setId, apply, made, ...done }))
        return { ...made, plannedAt: now, applyId: apply.id }
      },
    }),
  }
}
