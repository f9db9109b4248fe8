import type { Compilable } from 'kysely'
import { isNarrowed, organizationScope, type Scope, systemScope } from '../../core/scope.ts'
import type { Db } from '../db.ts'
import { type Params, prepared } from './prepared.ts'

type Value = string | number | null

/**
 * `prepared` for queries that start from a scope: compiled once for each kind of scope. If a scope is a list (some
 * organizations, sites or device groups), its length is part of the query, which is then built each time.
 */
export function preparedInScope<P extends { [K in keyof P]: Value }, O>(
  build: (db: Db, scope: Scope, p: Params<P>) => Compilable<O>,
): (db: Db, scope: Scope, values: P) => Promise<O[]> {
  type Scoped = P & { ofScope: string }
  const inSystem = prepared<P, O>((db, p) => build(db, systemScope, p))
  const inPartner = prepared<Scoped, O>((db, p) =>
    build(db, { kind: 'partner', partnerId: p.ofScope, orgs: 'all' }, p as Params<P>),
  )
  const inOrganization = prepared<Scoped, O>((db, p) =>
    build(db, organizationScope(p.ofScope), p as Params<P>),
  )
  return async (db, scope, values) => {
    if (scope.kind === 'system') return inSystem(db, values)
    if (scope.kind === 'partner' && scope.orgs === 'all') {
      return inPartner(db, { ...values, ofScope: scope.partnerId })
    }
    if (scope.kind === 'organization' && !isNarrowed(scope)) {
      return inOrganization(db, { ...values, ofScope: scope.orgId })
    }
    const { rows } = await db.executeQuery<O>(build(db, scope, values).compile())
    return rows
  }
}
