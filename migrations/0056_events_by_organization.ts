import type { Schema } from '../src/storage/columns.ts'

/** What is to be given out is looked for organization by organization. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema.createIndex('events_org').on('events').columns(['org_id', 'seq']).execute()
}
