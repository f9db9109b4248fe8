/**
 * The organizations a caller can see. Every store function on tenant data takes one as a required argument, and
 * its query starts from it (`src/storage/dialect.ts`, `inScope`).
 */
export type Scope =
  | { kind: 'system' }
  /** `orgs`: 'all' of the partner, or the granted ids (an empty list sees nothing). */
  | { kind: 'partner'; partnerId: string; orgs: 'all' | readonly string[] }
  /** `siteIds`, `groupIds`: restricted to some sites or device groups; null means all. */
  | {
      kind: 'organization'
      orgId: string
      siteIds: readonly string[] | null
      groupIds: readonly string[] | null
    }

export type ScopeKind = Scope['kind']

export const systemScope: Scope = { kind: 'system' }

/** Exactly one organization, without restrictions. */
export function organizationScope(orgId: string): Scope {
  return { kind: 'organization', orgId, siteIds: null, groupIds: null }
}

/** Whether the caller sees only a part of their organization. */
export const isNarrowed = (scope: Scope): boolean =>
  scope.kind === 'organization' && (scope.siteIds !== null || scope.groupIds !== null)
