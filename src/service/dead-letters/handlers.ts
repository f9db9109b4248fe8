import { hash } from 'node:crypto'
import { Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { AuditFacts, HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import type * as contract from './contract.ts'
import * as store from './store.ts'

/**
 * Writes a dead letter to its destination; returns facts about the result for the audit log. @throws when that is not
 * possible
 */
type Rewrite = (
  db: Db,
  scope: Scope,
  letter: { orgId: string | null; entry: string },
  now: Instant,
) => Promise<Record<string, unknown>>

export type Rewrites = Record<contract.DeadLetter['source'], Rewrite>

/** Identified by its hash, which the audit chain contains as well; the content stays out of the audit log. */
const factsOf = ({ number, source, orgId, reason, entry }: contract.DeadLetterDetail): AuditFacts => ({
  orgId: null,
  resourceId: String(number),
  details: { source, organizationId: orgId, reason, sha256: hash('sha256', entry, 'hex') },
})

export const deadLetterHandlers = (rewrites: Rewrites): HandlersOf<typeof contract.deadLetters> => ({
  list: ({ db, scope, query }) => store.listDeadLetters(db, scope, query),

  async show({ db, scope, params, note }) {
    const letter = await store.getDeadLetter(db, scope, params.number)
    note(factsOf(letter))
    return letter
  },

  async retry({ db, scope, params, now, note }) {
    const letter = await store.getDeadLetter(db, scope, params.number, { held: true })
    note(factsOf(letter))
    const rewrite: Rewrite | undefined = rewrites[letter.source]
    if (!rewrite) throw new Problem('conflict', 'Only a newer release of the service can write it')
    note({ details: await rewrite(db, scope, letter, now) })
    await store.deleteDeadLetter(db, scope, params.number)
    return { success: true, source: letter.source }
  },

  async remove({ db, scope, params, note }) {
    note(factsOf(await store.getDeadLetter(db, scope, params.number, { held: true })))
    await store.deleteDeadLetter(db, scope, params.number)
    return { success: true }
  },
})
