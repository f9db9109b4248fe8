import type { Cipher } from '../core/cipher.ts'
import type { Scope } from '../core/scope.ts'
import type { AppliedChange } from './history/applied-changes.ts'
import type { CallContext, InnerCalls } from './ports.ts'
import type { ConfigurationRequest } from './rules.ts'
import type { NameChange, SetOwner } from './store.ts'

/** What is planned: for whom, of which tenant, and from which files. */
export type PlanContext = {
  calls: InnerCalls
  cipher: Cipher
  on: CallContext
  scope: Scope
  owner: SetOwner
  request: ConfigurationRequest
  /** The set, where it is known already. */
  setId: string | undefined
  /** The apply that is rolled back, in place of files. */
  rolledBack?: readonly AppliedChange[] | undefined
  /** What it changed of the names in files. */
  nameChanges?: readonly NameChange[] | undefined
}
