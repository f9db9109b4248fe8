import { Problem } from '../../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import { isForeignKeyViolation } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { contains, idStartsWith } from '../../storage/query/expressions.ts'
import { readById, readPage } from '../../storage/query/pages.ts'
import { preparedInScope } from '../../storage/query/prepared-in-scope.ts'
import { inScope } from '../../storage/query/scope.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { SavedFilterRow } from '../../storage/schema/tables.ts'
import type { SavedFilter } from '../contract.ts'

const filterRows = rowsOf<SavedFilterRow>()({ json: ['conditions'] })

const columns = [
  'id',
  'org_id',
  'name',
  'description',
  'conditions',
  'created_by',
  'created_at',
  'updated_at',
] as const

const toFilter = (row: SavedFilterRow): SavedFilter => filterRows.read(row) as unknown as SavedFilter

const filtersIn = (db: Db, scope: Scope) =>
  db.selectFrom('saved_filters').where(inScope(scope, 'saved_filters.org_id'))

export const countFiltersIn = (db: Db, scope: Scope): Promise<number> => countRowsOf(filtersIn(db, scope))

type FilterQuery = PageQuery & {
  orgId?: string | undefined
  search?: string | undefined
  idPrefix?: string | undefined
}

/** Newest first; `search` is part of the name or description, ignoring letter case. */
export function listFilters(
  db: Db,
  scope: Scope,
  { orgId, search, idPrefix, ...page }: FilterQuery,
): Promise<Page<SavedFilter>> {
  const found = filtersIn(db, scope)
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(idPrefix !== undefined, (q) => q.where(idStartsWith('saved_filters.id', idPrefix!)))
    .$if(search !== undefined && search !== '', (q) =>
      q.where((eb) => eb.or([contains('name', search!), contains('description', search!)])),
    )
  return readPage(
    found,
    page,
    (q) => q.select(columns).orderBy('created_at', 'desc').orderBy('id', 'desc'),
    toFilter,
  )
}

export async function listFiltersById(db: Db, scope: Scope, page: IdPage): Promise<SavedFilter[]> {
  const rows = await readById(filtersIn(db, scope), 'saved_filters.id', page, (q) => q.select(columns))
  return rows.map(toFilter)
}

const byId = preparedInScope((db, scope, p: { id: string }) =>
  filtersIn(db, ofOne(scope)).select(columns).where('id', '=', p.id),
)

/** @throws not_found, also for a filter outside the scope */
export async function getFilter(db: Db, scope: Scope, id: string): Promise<SavedFilter> {
  const [row] = await byId(db, scope, { id })
  if (!row) throw new Problem('not_found', 'Saved filter not found')
  return toFilter(row)
}

export async function insertFilter(db: Db, filter: SavedFilter): Promise<void> {
  const { conditions, ...rest } = filter
  await db
    .insertInto('saved_filters')
    .values({ ...filterRows.write(rest), conditions: JSON.stringify(conditions) })
    .execute()
}

/** Sets the given fields and leaves the rest unchanged. */
export async function changeFilter(
  db: Db,
  scope: Scope,
  id: string,
  change: Partial<Pick<SavedFilter, 'name' | 'description' | 'conditions'>> & { updatedAt: string },
): Promise<void> {
  const { conditions, ...rest } = change
  await db
    .updateTable('saved_filters')
    .set({
      ...filterRows.write(rest),
      ...(conditions !== undefined && { conditions: JSON.stringify(conditions) }),
    })
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'saved_filters.org_id'))
    .execute()
}

/** @throws conflict while a device group uses it */
export async function removeFilter(db: Db, scope: Scope, id: string): Promise<void> {
  const removal = db
    .deleteFrom('saved_filters')
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'saved_filters.org_id'))
  await removal.execute().catch((error) => {
    if (isForeignKeyViolation(error)) throw new Problem('conflict', inUse)
    throw error
  })
}

const inUse = 'Device groups use this filter: change or delete them first'
