// Listens, holds the lock of migrations in a migration that never ends, and waits to be killed or frozen.
import { pathToFileURL } from 'node:url'
import { migrate } from '../../src/storage/migrate.ts'
import { openStorage } from '../../src/storage/open.ts'

const [, , databaseUrl, poolerUrl, folder] = process.argv
const storage = await openStorage({ databaseUrl, poolerUrl, dataDir: '' })
await storage.signals!.listen('held', { onMessage() {}, onReconnect() {} })
const patient = await openStorage({ databaseUrl, dataDir: '', postgres: { statementMs: 0 } })
const up = () => new Promise<never>(() => process.stdout.write('holds\n'))
await migrate(patient, [{ name: '0001_waits', up }], { folder: pathToFileURL(`${folder}/`) }).catch(() => {})
// Its session was ended; the listener goes on.
setInterval(() => {}, 1000)
