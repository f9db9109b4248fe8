import { type Expression, type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
import type { Scope } from '../../core/scope.ts'
import { byDialect } from './compilers.ts'
import { orgsInHistory } from './scope.ts'

type Page = { limit: number; offset: number }

/** The order of an index that begins with the column of the organization: `time` and then `id`, the newest first. */
type Newest = { column: string; time: string; id: string }

/** Rows that the condition allows, which is about the organization. */
type Found<DB, TB extends keyof DB> = (isOfOrg: Expression<SqlBool>) => SelectQueryBuilder<DB, TB, object>

/**
 * Ids of a page of what a partner's organizations have, for `where id in`. An index has the newest rows of each organization:
 * both databases would rather go through those of all partners, or sort all rows of this one.
 */
export function newestOfEachOrg<DB, TB extends keyof DB>(
  scope: Extract<Scope, { kind: 'partner' }>,
  { column, time, id }: Newest,
  { limit, offset }: Page,
  found: Found<DB, TB>,
): Expression<string> {
  const newest = (isOfOrg: Expression<SqlBool>) =>
    found(isOfOrg)
      .select([sql.ref<string>(time).as('time'), sql.ref<string>(id).as('id')])
      .orderBy(sql.ref(time), 'desc')
      .orderBy(sql.ref(id), 'desc')
  // With a bound of the time SQLite takes the index by time, and stops in each organization where the page is full.
  const inOrgs = sql<SqlBool>`${sql.ref(column)} in (${orgsInHistory(scope)}) and ${sql.ref(time)} >= ''`
  const ofOne = sql<SqlBool>`${sql.ref(column)} = each_org.id`
  return byDialect<string>({
    sqlite: sql`(select newest.id from (${newest(inOrgs).limit(limit).offset(offset)}) as newest)`,
    postgres: sql`(select newest.id from (${orgsInHistory(scope)}) as each_org
      cross join lateral (${newest(ofOne).limit(limit + offset)}) as newest
      order by newest.time desc, newest.id desc limit ${limit} offset ${offset})`,
  })
}
