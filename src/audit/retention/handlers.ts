import { assertNotEmptyChange, invalid } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { type Call, type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { checkOrgInHistory } from '../../tenancy/store.ts'
import { requestedChain, sealedRead } from '../handlers.ts'
import { orgOfChain } from '../rules.ts'
import { findAnchor } from './anchors.ts'
import { countArchives } from './archiving.ts'
import type { AuditRetention, auditRetention as contract } from './contract.ts'
import { countExpired } from './entries.ts'
import { noArchiveMessage, type PruneRun, pruneChain, type RetentionDependencies } from './jobs.ts'
import { cutoffOf, retentionActions, toAuditedPolicy } from './rules.ts'
import { changeHold, changePolicy, getPolicy, lockPolicy } from './store.ts'

type Retention = typeof contract
type RetentionCall = {
  scope: Scope
  query: { orgId?: string | undefined }
  note: Call<Retention['show']>['note']
}

/** Time that one call of a person may take; they call again for the rest. */
const callLimits = { milliseconds: 3000 }

/** Changes to a chain's retention are audited in that chain. */
async function requestedChainOf(db: Db, { scope, query, note }: RetentionCall): Promise<string> {
  if (query.orgId !== undefined) await checkOrgInHistory(db, scope, query.orgId)
  const chain = requestedChain(scope, query.orgId)
  const orgId = orgOfChain(chain)
  note({ orgId, ...(orgId !== null && { resourceId: orgId }) })
  return chain
}

export const retentionHandlers = (deps: RetentionDependencies): HandlersOf<Retention> => {
  const { archive } = deps

  const retentionOf = async (db: Db, scope: Scope, chain: string): Promise<AuditRetention> => {
    const { failures: _, ...policy } = await getPolicy(db, scope, chain)
    const { signed, head, prunedCount } = await findAnchor(db, scope, chain)
    const kept = await countArchives(db, scope, chain)
    return {
      orgId: orgOfChain(chain),
      ...policy,
      anchor: signed && { seq: head.seq, time: signed.time, prunedCount },
      archive: { configured: archive !== undefined, ...kept },
    }
  }

  const dueOf = async (db: Db, scope: Scope, chain: string, now: Instant) => {
    const { head } = await findAnchor(db, scope, chain)
    return countExpired(db, chain, head.seq, cutoffOf(await getPolicy(db, scope, chain), now))
  }

  return {
    show: sealedRead<Retention['show']>(async ({ db, storage, now, ...call }) => {
      const chain = await requestedChainOf(db, call)
      const retention = await retentionOf(db, call.scope, chain)
      return call.query.due
        ? { ...retention, due: await dueOf(storage.heavy, call.scope, chain, now) }
        : retention
    }),

    change: async ({ db, body, ...call }) => {
      assertNotEmptyChange(body)
      const chain = await requestedChainOf(db, call)
      if (body.archiveToS3 && !archive) {
        throw invalid([{ path: 'body.archiveToS3', message: `cannot be true: ${noArchiveMessage}` }])
      }
      const before = await lockPolicy(db, call.scope, chain)
      const after = { ...before, ...body }
      await changePolicy(db, call.scope, chain, after)
      call.note({ before: toAuditedPolicy(before), after: toAuditedPolicy(after) })
      return retentionOf(db, call.scope, chain)
    },

    hold: async ({ db, body: { held, reason }, caller, now, ...call }) => {
      const chain = await requestedChainOf(db, call)
      const { hold: before } = await lockPolicy(db, call.scope, chain)
      const hold = held ? { reason: reason!, userId: caller.id, userEmail: caller.email, since: now } : null
      await changeHold(db, call.scope, chain, hold)
      call.note({
        ...(!held && { action: retentionActions.release }),
        before: { hold: before },
        after: { hold },
        ...(!held && reason !== undefined && { details: { reason } }),
      })
      return retentionOf(db, call.scope, chain)
    },

    run: inSteps<Retention['run'], { chain: string; run: PruneRun }>({
      // It runs in short transactions of its own, so other writers do not wait for it.
      prepare: async (call) => {
        const chain = await requestedChainOf(call.storage.read, call)
        return { chain, run: await pruneChain(deps, chain, callLimits) }
      },
      run: async ({ db, scope, note }, { chain, run: { state, pruned, policy } }) => {
        note({ orgId: orgOfChain(chain), details: { state, pruned, ...toAuditedPolicy(policy) } })
        return { state, pruned, retention: await retentionOf(db, scope, chain) }
      },
    }),
  }
}
