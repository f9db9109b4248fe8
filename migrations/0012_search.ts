import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Global search: which rows hold which letters, and titles in their order. Titles are indexed by their first 64
 * letters, because Postgres cannot index a text of any length. On SQLite the indexes hold all that a search
 * reads of a device, so that looking through a whole fleet does not read its rows.
 */
export async function up({ db, dialect, trigrams }: Schema): Promise<void> {
  await trigrams('devices', ['hostname_key', 'display_name_key'])
  await trigrams('scripts', ['name_key', 'description_key'])
  await trigrams('alerts', ['title_key', 'message_key'])

  const title = sql`substr(coalesce(display_name_key, hostname_key), 1, 64)`
  const covers = (columns: string) => sql.raw(dialect === 'sqlite' ? `, ${columns}` : '')
  await sql`create index devices_title_search on devices (
    ${title}, id${covers('hostname_key, display_name_key, org_id, site_id')}
  )`.execute(db)
  await sql`create index devices_name_search on devices (
    substr(hostname_key, 1, 64), ${title}, id${covers('hostname_key, display_name_key')}
  ) where display_name_key is not null`.execute(db)
  if (dialect === 'sqlite') {
    await sql`create index devices_org_search on devices (
      org_id, site_id, id, hostname_key, display_name_key
    )`.execute(db)
  }
  for (const [table, first, second] of [
    ['scripts', 'name_key', 'description_key'],
    ['alerts', 'title_key', 'message_key'],
  ]) {
    const [head, other] = [sql`substr(${sql.ref(first!)}, 1, 64)`, sql`substr(${sql.ref(second!)}, 1, 64)`]
    await sql`create index ${sql.id(`${table}_title_search`)} on ${sql.table(table!)} (${head}, id)`.execute(
      db,
    )
    await sql`create index ${sql.id(`${table}_text_search`)} on ${sql.table(table!)} (${other}, ${head}, id)
      where ${sql.ref(second!)} is not null`.execute(db)
  }
}
