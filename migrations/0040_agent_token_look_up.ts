import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** Whether any agent has a token is asked by whoever sends one with the id of no device: never a reading of all devices. */
export async function up({ db }: Schema): Promise<void> {
  for (const column of ['token_hash', 'watchdog_token_hash']) {
    await db.schema
      .createIndex(`devices_${column}`)
      .on('devices')
      .expression(sql.raw(`substr(${column}, 1, 8)`))
      .execute()
  }
}
