import type { Cipher } from '../../core/cipher.ts'
import type { AuditFacts } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import type { Plan } from '../contract.ts'
import { forgetDeleted, type NameChange, noteApplied } from '../store.ts'
import type { ConfiguredTenant } from '../tenant.ts'
import type { AppliedChange } from './applied-changes.ts'
import { insertApply, type NewApply } from './store.ts'

/** The end of an apply, of files or of a rollback: stores its changes, and returns the facts of its audit entry. */
export async function recordApply(
  db: Db,
  cipher: Cipher,
  { scope, owner }: ConfiguredTenant,
  {
    setId,
    apply,
    made: { changes, totals },
    applied,
    nameChanges,
  }: {
    setId: string
    apply: NewApply
    made: Pick<Plan, 'changes' | 'totals'>
    applied: readonly AppliedChange[]
    nameChanges: readonly NameChange[]
  },
): Promise<AuditFacts> {
  if (changes.length > 0) {
    await noteApplied(db, scope, setId, apply)
    await insertApply(db, cipher, owner, apply, { applied, nameChanges })
  }
  await forgetDeleted(db, owner, apply.now)
  // Not the body: each change has an entry of its own.
  return {
    orgId: owner.orgId,
    resourceId: apply.id,
    resourceName: apply.set,
    after: {},
    details: { configuration: configurationOf(apply), totals },
  }
}

/** What each audit entry of an apply says besides. */
export const configurationOf = ({
  id,
  set,
  revision,
  rollsBack,
}: Pick<NewApply, 'id' | 'set' | 'revision' | 'rollsBack'>) => ({
  applyId: id,
  set,
  ...(rollsBack !== null && { rollsBack }),
  ...(revision !== null && { revision }),
})
