import { administer } from '../postgres-databases.ts'
import { type Place, until } from './process.ts'

/** Postgres commits or rolls back what a killed client had sent; a second process would not wait for it. */
export async function connectionsGone({ databaseUrl }: Place): Promise<void> {
  if (databaseUrl === undefined) return
  const name = new URL(databaseUrl).pathname.slice(1)
  await administer((client) =>
    until(async () => {
      const { rowCount } = await client.query(
        `select 1 from pg_stat_activity where datname = $1 and application_name <> 'test'`,
        [name],
      )
      return rowCount === 0
    }),
  )
}
