import { migrate } from '../../src/storage/migrate.ts'
import { openStorage } from '../../src/storage/open.ts'
import { indexed, table } from './indexed-table.ts'

/** Migrates, and is killed by its parent while it does. */
const [folder = '', dataDir = '', databaseUrl = ''] = process.argv.slice(2)
const storage = await openStorage({ dataDir, databaseUrl, postgres: { statementMs: 0 } })
await migrate(storage, [table, indexed], { folder: new URL(folder) })
