import { hash } from 'node:crypto'
import { invalid, Problem } from '../core/errors.ts'
import { hideSecrets } from '../core/free-objects.ts'
import { withoutUndefined } from '../core/json.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Tenant } from '../identity/rules.ts'
import type { NewScript, Script, ScriptChange } from './contract.ts'

export function makeScript(
  { orgId, partnerId, isSystem, ...wanted }: NewScript,
  /** undefined for a script of the service. */
  owner: Tenant | undefined,
  { id, by, now }: { id: string; by: string; now: Instant },
): Script {
  return {
    id,
    orgId: owner?.kind === 'organization' ? owner.orgId : null,
    partnerId: owner?.kind === 'partner' ? owner.partnerId : null,
    ...wanted,
    isSystem: owner === undefined,
    version: 1,
    createdBy: by,
    createdAt: now,
    updatedAt: now,
  }
}

/** A script for every organization has no owner. @throws invalid_request, forbidden */
export function checkSystemScript(scope: Scope, { orgId, partnerId }: NewScript): void {
  if (scope.kind !== 'system') throw forbidden('Only administrators of the service create its scripts')
  if (orgId === undefined && partnerId === undefined) return
  throw invalid([{ path: 'body.isSystem', message: 'cannot go with orgId or partnerId' }])
}

/**
 * Visibility is not ownership: an organization uses the scripts of its partner and of the service, but does not
 * change them. @throws forbidden, partner_access_limited
 */
export function checkMayWrite(scope: Scope, script: Pick<Script, 'orgId' | 'partnerId' | 'isSystem'>): void {
  if (scope.kind === 'system' || script.orgId !== null) return
  if (script.isSystem) throw forbidden('Only administrators of the service change its scripts')
  if (scope.kind !== 'partner') throw forbidden('The script belongs to the partner')
  if (scope.orgs !== 'all') throw new Problem('partner_access_limited')
}

const forbidden = (message: string): Problem => new Problem('forbidden', message)

/** The version increases when the content changes. */
export function applyChange(script: Script, change: ScriptChange, now: Instant): Script {
  const after: Script = { ...script, ...withoutUndefined(change), updatedAt: now }
  return { ...after, version: script.version + (after.content === script.content ? 0 : 1) }
}

/**
 * What the audit log records of a script: of its content the length and SHA-256, which is enough to prove which one
 * it was.
 */
export const auditSnapshot = (script: Script) => ({
  ...snapshotOf(script),
  parameters: hideSecrets(script.parameters),
})

function snapshotOf({ content, createdAt, updatedAt, createdBy, id, ...rest }: Script) {
  return { ...rest, contentLength: content.length, contentSha256: hash('sha256', content, 'hex') }
}

/** The fields in which two records differ, before and after. */
export function auditDiff(before: Script, after: Script) {
  const [was, is] = [snapshotOf(before), snapshotOf(after)]
  const keys = (Object.keys(is) as (keyof typeof is)[]).filter(
    (key) => JSON.stringify(was[key]) !== JSON.stringify(is[key]),
  )
  const only = (one: ReturnType<typeof auditSnapshot>) =>
    Object.fromEntries(keys.map((key) => [key, one[key]]))
  return { before: only(auditSnapshot(before)), after: only(auditSnapshot(after)) }
}
