import type { ExpressionBuilder } from 'kysely'
import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import type { IdPage, Page, PageQuery } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { contains, idStartsWith } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { readById, readPage } from '../storage/query/pages.ts'
import { inScope, inTenants } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { ScriptRow, Tables } from '../storage/schema/tables.ts'
import type { Script, ScriptSummary } from './contract.ts'

type PublicRow = Omit<ScriptRow, 'name_key' | 'description_key' | 'deleted_at'>

const scriptRows = rowsOf<PublicRow>()({ json: ['os_types', 'parameters'], flags: ['is_system'] })

const summaryColumns = [
  'id',
  'org_id',
  'partner_id',
  'name',
  'description',
  'category',
  'os_types',
  'language',
  'timeout_seconds',
  'run_as',
  'is_system',
  'version',
  'created_by',
  'created_at',
  'updated_at',
] as const
const columns = [...summaryColumns, 'content', 'parameters'] as const

const toScript = (row: PublicRow): Script => scriptRows.read(row) as unknown as Script

/**
 * An organization sees its own scripts, those of its partner and those of the service; a partner also those of its
 * organizations.
 */
const scriptsIn = (db: Db, scope: Scope) =>
  db
    .selectFrom('scripts')
    .where('scripts.deleted_at', 'is', null)
    .where((eb) => eb.or([inScope(scope, 'scripts.org_id'), ...sharedWith(eb, scope)]))

/** Those of the tenant itself, and of the organizations of a partner. */
export const countScriptsIn = (db: Db, scope: Scope): Promise<number> =>
  countRowsOf(
    db
      .selectFrom('scripts')
      .where('deleted_at', 'is', null)
      .where('is_system', '=', 0)
      .where(inTenants(scope, 'scripts')),
  )

/** Scripts of the partner, and of the service. */
function sharedWith(eb: ExpressionBuilder<Tables, 'scripts'>, scope: Scope) {
  if (scope.kind === 'system') return []
  const ofPartner =
    scope.kind === 'partner'
      ? eb('scripts.partner_id', '=', scope.partnerId)
      : eb('scripts.partner_id', 'in', partnerOf(eb, scope.orgId))
  return [ofPartner, eb('scripts.is_system', '=', 1)]
}

const partnerOf = (eb: ExpressionBuilder<Tables, 'scripts'>, orgId: string) =>
  eb.selectFrom('organizations').select('organizations.partner_id').where('organizations.id', '=', orgId)

export type ScriptQuery = PageQuery & {
  language?: string | undefined
  osType?: string | undefined
  category?: string | undefined
  isSystem?: boolean | undefined
  search?: string | undefined
  idPrefix?: string | undefined
}

/** Ordered by name. */
export async function listScripts(db: Db, scope: Scope, query: ScriptQuery): Promise<Page<ScriptSummary>> {
  const { language, osType, category, isSystem, search, idPrefix } = query
  const found = scriptsIn(db, scope)
    .$if(language !== undefined, (q) => q.where('language', '=', language!))
    .$if(osType !== undefined, (q) => q.where(contains('os_types', JSON.stringify(osType))))
    .$if(category !== undefined, (q) => q.where('category', '=', category!))
    .$if(isSystem !== undefined, (q) => q.where('is_system', '=', isSystem ? 1 : 0))
    .$if(idPrefix !== undefined, (q) => q.where(idStartsWith('scripts.id', idPrefix!)))
    .$if(!!search, (q) =>
      q.where((eb) => eb.or([contains('name', search!), contains('description', search!)])),
    )
  const byName = (q: typeof found) => q.select(summaryColumns).orderBy('name').orderBy('id')
  return readPage(found, query, byName, (row) => scriptRows.read(row) as unknown as ScriptSummary)
}

/** Some of them with their content, by id: those after this one, all of which may be long. */
export async function listWholeScripts(db: Db, scope: Scope, page: IdPage): Promise<Script[]> {
  const rows = await readById(scriptsIn(db, scope), 'scripts.id', page, (q) => q.select(columns))
  return rows.map(toScript)
}

/** @throws not_found, also for a script outside the scope */
export async function getScript(db: Db, scope: Scope, id: string): Promise<Script> {
  return scriptOrThrow(
    await scriptsIn(db, ofOne(scope)).select(columns).where('id', '=', id).executeTakeFirst(),
  )
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockScript(db: Db, scope: Scope, id: string): Promise<Script> {
  const query = scriptsIn(db, ofOne(scope)).select(columns).where('id', '=', id)
  return scriptOrThrow(await forUpdate(query).executeTakeFirst())
}

function scriptOrThrow(row: PublicRow | undefined): Script {
  if (!row) throw new Problem('not_found', 'Script not found')
  return toScript(row)
}

const keysOf = ({ name, description }: Script) => ({
  name_key: fold(name),
  description_key: description === null ? null : fold(description),
})

const write = (script: Script): PublicRow => scriptRows.write(script as never) as PublicRow

export async function insertScript(db: Db, script: Script): Promise<void> {
  await db
    .insertInto('scripts')
    .values({ ...write(script), ...keysOf(script), deleted_at: null })
    .execute()
}

export async function changeScript(db: Db, scope: Scope, script: Script): Promise<void> {
  await db
    .updateTable('scripts')
    .set({ ...write(script), ...keysOf(script) })
    .where('id', 'in', scriptsIn(db, scope).select('id'))
    .where('id', '=', script.id)
    .execute()
}

export async function removeScript(db: Db, scope: Scope, id: string, now: Instant): Promise<void> {
  await db
    .updateTable('scripts')
    .set({ deleted_at: now, updated_at: now })
    .where('id', 'in', scriptsIn(db, scope).select('id'))
    .where('id', '=', id)
    .execute()
}
