import { existsSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import type { Place } from './filled.ts'

/** What drills leave behind. */
export async function scratchOf({ dataDir, databaseUrl }: Place, scratch?: string): Promise<string[]> {
  const folder = join(scratch ?? join(dataDir, 'drill'), 'scratch')
  const found = existsSync(folder) ? [folder] : []
  if (databaseUrl === undefined) return found
  const client = new pg.Client(databaseUrl)
  await client.connect()
  const { rows } = await client
    .query(
      `select datname from pg_database where starts_with(datname, 'svc_drill_' ||
        (select oid from pg_database where datname = current_database()) || '_')`,
    )
    .finally(() => client.end())
  return [...found, ...rows.map(({ datname }) => datname)]
}
