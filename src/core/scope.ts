/**
 * The organizations a caller can see. Every store function on tenant data takes one as a required argument, and
 * its query starts from it (`src/storage/query/scope.ts`, `inScope`).
 */
export type Scope =
  | { kind: 'system' }
  /** `orgs`: 'all' of the partner, or the granted ids (an empty list sees nothing). `isOfOne`: see `ofOne`. */
  | { kind: 'partner'; partnerId: string; orgs: 'all' | readonly string[]; isOfOne?: true }
  /** `siteIds`, `groupIds`: restricted to some sites or device groups; null means all. */
  | {
      kind: 'organization'
      orgId: string
      siteIds: readonly string[] | null
      groupIds: readonly string[] | null
    }

export type ScopeKind = Scope['kind']
export type PartnerScope = Extract<Scope, { kind: 'partner' }>

export const systemScope: Scope = { kind: 'system' }

/** Exactly one organization, without restrictions. */
export function organizationScope(orgId: string): Scope {
  return { kind: 'organization', orgId, siteIds: null, groupIds: null }
}

/**
 * The same for a query that names one row by its id: the database looks up the organization of that row. For a list it
 * begins with all organizations of the partner, which for one row would take as long as for all.
 */
export const ofOne = (scope: Scope): Scope => (scope.kind === 'partner' ? { ...scope, isOfOne: true } : scope)

/** Whether the caller sees only a part of their organization. */
export const isNarrowed = (scope: Scope): boolean =>
  scope.kind === 'organization' && (scope.siteIds !== null || scope.groupIds !== null)
