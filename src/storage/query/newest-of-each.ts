import { type Expression, type ExpressionWrapper, type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
import type { PartnerScope } from '../../core/scope.ts'
import { byDialect } from './compilers.ts'
import { orgsInHistory } from './scope.ts'

type Page = { limit: number; offset: number }

/** The order of an index that begins with the column of the organization: `time` and then `id`, the newest first. */
type Newest = { column: string; time: string; id: string }

/** Rows that the condition allows, which is about the organization. */
type Found<DB, TB extends keyof DB> = (isOfOrg: Expression<SqlBool>) => SelectQueryBuilder<DB, TB, object>

/**
 * Time and id of a page of what a partner's organizations have: a table, in no order. An index has the newest rows of each organization:
 * both databases would rather go through those of all partners, or sort all rows of this one.
 */
export function newestOfEachOrg<DB, TB extends keyof DB>(
  scope: PartnerScope,
  { column, time, id }: Newest,
  { limit, offset }: Page,
  found: Found<DB, TB>,
): ExpressionWrapper<never, never, { time: string; id: string }> {
  const newest = (isOfOrg: Expression<SqlBool>) =>
    found(isOfOrg)
      .select([sql.ref<string>(time).as('time'), sql.ref<string>(id).as('id')])
      .orderBy(sql.ref(time), 'desc')
      .orderBy(sql.ref(id), 'desc')
  // With a bound of the time SQLite takes the index by time, and stops in each organization where the page is full.
  const inOrgs = sql<SqlBool>`${sql.ref(column)} in (${orgsInHistory(scope)}) and ${sql.ref(time)} >= ''`
  const ofOne = sql<SqlBool>`${sql.ref(column)} = each_org.id`
  return byDialect<{ time: string; id: string }>({
    sqlite: sql`${newest(inOrgs).limit(limit).offset(offset)}`,
    postgres: sql`(select newest.time, newest.id from (${orgsInHistory(scope)}) as each_org
      cross join lateral (${newest(ofOne).limit(limit + offset)}) as newest
      order by newest.time desc, newest.id desc limit ${limit} offset ${offset})`,
  })
}
