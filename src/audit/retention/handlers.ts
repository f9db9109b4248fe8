import { assertNotEmptyChange, invalid } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { type Call, type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { checkOrgInHistory } from '../../tenancy/store.ts'
import { chainAsked, sealed } from '../handlers.ts'
import { orgOf } from '../rules.ts'
import { findAnchor } from './anchors.ts'
import { archivesOf } from './archiving.ts'
import type { AuditRetention, auditRetention as contract } from './contract.ts'
import { countOld } from './entries.ts'
import { pruneChain, type RetentionParts, type Run, unconfigured } from './jobs.ts'
import { actions, cutoffOf, told } from './rules.ts'
import { changeHold, changePolicy, getPolicy, lockPolicy } from './store.ts'

type Retention = typeof contract
type Asked = { scope: Scope; query: { orgId?: string | undefined }; note: Call<Retention['show']>['note'] }

/** What one call of a person may take; they call again for the rest. */
const oneCall = { milliseconds: 3000 }

/** What happens to a chain is told in that chain. */
async function chainOfCall(db: Db, { scope, query, note }: Asked): Promise<string> {
  if (query.orgId !== undefined) await checkOrgInHistory(db, scope, query.orgId)
  const chain = chainAsked(scope, query.orgId)
  note({ orgId: orgOf(chain) })
  return chain
}

export const retentionHandlers = (parts: RetentionParts): HandlersOf<Retention> => {
  const { archive } = parts

  const retentionOf = async (db: Db, scope: Scope, chain: string): Promise<AuditRetention> => {
    const { failures: _, ...policy } = await getPolicy(db, scope, chain)
    const { signed, head, prunedCount } = await findAnchor(db, scope, chain)
    const kept = await archivesOf(db, scope, chain)
    return {
      orgId: orgOf(chain),
      ...policy,
      anchor: signed && { seq: head.seq, time: signed.time, prunedCount },
      archive: { configured: archive !== undefined, ...kept },
    }
  }

  const dueOf = async (db: Db, scope: Scope, chain: string, now: Instant) => {
    const { head } = await findAnchor(db, scope, chain)
    return countOld(db, chain, head.seq, cutoffOf(await getPolicy(db, scope, chain), now))
  }

  return {
    show: sealed<Retention['show']>(async ({ db, storage, now, ...call }) => {
      const chain = await chainOfCall(db, call)
      const retention = await retentionOf(db, call.scope, chain)
      return call.query.due
        ? { ...retention, due: await dueOf(storage.heavy, call.scope, chain, now) }
        : retention
    }),

    change: async ({ db, body, ...call }) => {
      assertNotEmptyChange(body)
      const chain = await chainOfCall(db, call)
      if (body.archiveToS3 && !archive) {
        throw invalid([{ path: 'body.archiveToS3', message: `cannot be true: ${unconfigured}` }])
      }
      const before = await lockPolicy(db, call.scope, chain)
      const after = { ...before, ...body }
      await changePolicy(db, call.scope, chain, after)
      call.note({ before: told(before), after: told(after) })
      return retentionOf(db, call.scope, chain)
    },

    hold: async ({ db, body: { held, reason }, caller, now, ...call }) => {
      const chain = await chainOfCall(db, call)
      const { hold: before } = await lockPolicy(db, call.scope, chain)
      const hold = held ? { reason: reason!, userId: caller.id, userEmail: caller.email, since: now } : null
      await changeHold(db, call.scope, chain, hold)
      call.note({
        ...(!held && { action: actions.release }),
        before: { hold: before },
        after: { hold },
        ...(!held && reason !== undefined && { details: { reason } }),
      })
      return retentionOf(db, call.scope, chain)
    },

    run: inSteps<Retention['run'], { chain: string; run: Run }>({
      // Its own transactions, short ones: nobody waits for it.
      prepare: async (call) => {
        const chain = await chainOfCall(call.storage.read, call)
        return { chain, run: await pruneChain(parts, chain, oneCall) }
      },
      run: async ({ db, scope, note }, { chain, run: { state, pruned, policy } }) => {
        note({ orgId: orgOf(chain), details: { state, pruned, ...told(policy) } })
        return { state, pruned, retention: await retentionOf(db, scope, chain) }
      },
    }),
  }
}
