import { Problem } from '../../core/errors.ts'
import type { CursorPage, CursorPageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import { type DeadLetterSource, sizeOfEntry } from '../../storage/dead-letters.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { readCursorPage } from '../../storage/query/pages.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import type { DeadLetter, DeadLetterDetail } from './contract.ts'

const columns = ['id', 'source', 'org_id', 'reason', 'created_at'] as const
type Row = Pick<Tables['set_aside'], Exclude<(typeof columns)[number], 'id'>> & { id: number; bytes: number }

const read = ({
  id: number,
  source,
  org_id: orgId,
  reason,
  bytes,
  created_at: createdAt,
}: Row): DeadLetter => ({ number, source: source as DeadLetterSource, orgId, reason, bytes, createdAt })

const lettersIn = (db: Db, scope: Scope) => db.selectFrom('set_aside').where(inScope(scope, 'org_id'))

export const listDeadLetters = (
  db: Db,
  scope: Scope,
  query: CursorPageQuery & { source?: DeadLetterSource | undefined },
): Promise<CursorPage<DeadLetter>> =>
  readCursorPage(
    lettersIn(db, scope).$if(query.source !== undefined, (q) => q.where('source', '=', query.source!)),
    query,
    { by: ['id'], direction: 'desc', keyOf: ({ number }) => [number] },
    (q) => q.select(columns).select(sizeOfEntry.as('bytes')),
    read,
  )

/** `held` locks the row until the transaction ends, for a change. @throws not_found */
export async function getDeadLetter(
  db: Db,
  scope: Scope,
  number: number,
  { held = false } = {},
): Promise<DeadLetterDetail> {
  const found = lettersIn(db, ofOne(scope))
    .select([...columns, 'entry'])
    .select(sizeOfEntry.as('bytes'))
    .where('id', '=', number)
  const row = await (held ? forUpdate(found) : found).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Dead letter not found')
  return { ...read(row), entry: row.entry }
}

export async function deleteDeadLetter(db: Db, scope: Scope, number: number): Promise<void> {
  await db
    .deleteFrom('set_aside')
    .where(inScope(ofOne(scope), 'org_id'))
    .where('id', '=', number)
    .execute()
}
