import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Names of software are indexed by their first letters: Postgres cannot index a text of any length. Values of custom
 * fields are found from the device, so they need no index besides its key.
 */
export async function up({ db }: Schema): Promise<void> {
  await db.schema.dropIndex('device_custom_fields_value').execute()
  await db.schema.dropIndex('device_software_name').execute()
  await sql`create index device_software_search on device_software (substr(name_key, 1, 64), device_id)`.execute(
    db,
  )
}
