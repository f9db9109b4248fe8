import { sql } from 'kysely'
import { SetupError } from '../../core/errors.ts'
import type { AnyDb } from '../columns.ts'
import type { Storage } from '../db.ts'
import { hasTable } from '../migration-ledger.ts'

/*
 * A table marks a database that is being restored: it is there before any other, and goes in the last transaction. A
 * restore that was interrupted at any point therefore leaves a database that nothing else opens.
 */

export const markName = 'svc_restore'

export async function createMark(db: AnyDb): Promise<void> {
  await sql`create table if not exists ${sql.id(markName)} (since text not null)`.execute(db)
}

export async function dropMark(db: AnyDb): Promise<void> {
  await sql`drop table ${sql.id(markName)}`.execute(db)
}

/** The same for `svc db copy`: the table that keeps how far the copy is, which goes in its last transaction. */
export const copyMarkName = 'svc_copy'

/** @throws SetupError when a restore or copy into this database did not finish */
export async function assertNoUnfinishedRestore(storage: Pick<Storage, 'dialect' | 'read'>): Promise<void> {
  if (await hasTable(storage, copyMarkName)) {
    throw new SetupError(
      'A copy into this database did not finish: repeat svc db copy, which goes on where it stopped.',
    )
  }
  if (!(await hasTable(storage, markName))) return
  throw new SetupError(
    'A restore into this database did not finish: repeat svc db restore, which starts over by itself.',
  )
}
