import { Problem } from '../../core/errors.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import { violatedUniqueKey } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { forNoKeyUpdate } from '../../storage/query/locks.ts'
import { readPage } from '../../storage/query/pages.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { PartnerRow } from '../../storage/schema/tables.ts'
import type { Partner } from './contract.ts'

/* A partner is visible in system scope and to its own users: its id is the scope. */

const partnerRows = rowsOf<PartnerRow>()({ json: ['settings', 'sso_config'] })

const readPartner = (row: PartnerRow) => partnerRows.read(row) as Partner

const live = (db: Db) => db.selectFrom('partners').where('deleted_at', 'is', null)

export async function listPartners(db: Db, page: PageQuery): Promise<Page<Partner>> {
  return readPage(live(db), page, (q) => q.selectAll().orderBy('name').orderBy('id'), readPartner)
}

async function findPartner(db: Db, id: string): Promise<Partner | undefined> {
  const row = await live(db).selectAll().where('id', '=', id).executeTakeFirst()
  return row && readPartner(row)
}

/** @throws not_found */
export async function getPartner(db: Db, id: string): Promise<Partner> {
  const partner = await findPartner(db, id)
  if (!partner) throw new Problem('not_found', 'Partner not found')
  return partner
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockPartner(db: Db, id: string): Promise<Partner> {
  const row = await forNoKeyUpdate(live(db).selectAll().where('id', '=', id)).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Partner not found')
  return readPartner(row)
}

/** @throws slug_taken */
export async function insertPartner(db: Db, partner: Partner): Promise<void> {
  await db.insertInto('partners').values(partnerRows.write(partner)).execute().catch(throwSlugTaken)
}

/** @throws slug_taken */
export async function changePartner(db: Db, partner: Partner): Promise<void> {
  const { id, ...rest } = partnerRows.write(partner)
  await db.updateTable('partners').set(rest).where('id', '=', id).execute().catch(throwSlugTaken)
}

/** A slug is unique among records that are not deleted. @throws slug_taken, and any other error unchanged */
export function throwSlugTaken(error: unknown): never {
  if (violatedUniqueKey(error)) throw new Problem('slug_taken')
  throw error
}
