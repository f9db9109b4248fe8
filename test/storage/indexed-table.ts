import type { Migration } from '../../src/storage/migrate.ts'

export const table: Migration = {
  name: '0001_table',
  up: async ({ db, text, integer }) => {
    await db.schema
      .createTable('parts')
      .addColumn('id', text, (it) => it.primaryKey())
      .addColumn('name', text)
      .addColumn('size', integer)
      .execute()
  },
}

export const indexed: Migration = {
  name: '0002_indexed',
  indexes: [
    { name: 'parts_names', table: 'parts', columns: ['name'], unique: true },
    { name: 'parts_by_size', table: 'parts', columns: ['size desc', 'id'], where: 'size > 0' },
  ],
}
