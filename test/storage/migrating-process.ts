import { type Migration, migrate } from '../../src/storage/migrate.ts'
import { openStorage } from '../../src/storage/open.ts'
import { changing, first, middle } from './changing-migration.ts'

/** Tells its parent when it is in the middle of a migration, and stays there. */
const [folder = '', dataDir = '', databaseUrl] = process.argv.slice(2)
const storage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
const hanging: Migration = {
  name: changing.name,
  up: async (schema) => {
    await changing.up!(schema)
    process.send!(middle)
    await new Promise(() => {})
  },
}
await migrate(storage, [first, hanging], { folder: new URL(folder) })
