import { sql } from 'kysely'
import type { Migration } from '../../src/storage/migrate.ts'

export const first: Migration = {
  name: '0001_first',
  up: async ({ db, text, integer, appendOnly }) => {
    await db.schema
      .createTable('parts')
      .addColumn('id', text, (it) => it.primaryKey())
      .addColumn('size', integer)
      .execute()
    await sql`insert into parts (id, size) values ('a', 1), ('b', 1)`.execute(db)
    await db.schema.createTable('entries').addColumn('id', text).execute()
    await appendOnly('entries')
  },
}

/** What a process that is killed there has told before. */
export const middle = 'in the middle'

export const changing: Migration = {
  name: '0002_changing',
  up: async ({ db, text, liftAppendOnly }) => {
    await db.schema.createTable('more').addColumn('id', text).execute()
    await db.schema.alterTable('parts').addColumn('color', text).execute()
    await sql`update parts set size = 2, color = 'red'`.execute(db)
    await db.schema.createIndex('parts_by_color').on('parts').column('color').execute()
    await liftAppendOnly('entries')
    await db.schema.dropTable('entries').execute()
  },
}
