import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Kysely } from 'kysely'
import { onTestFinished, vi } from 'vitest'
import { type BackupOptions, type BackupSummary, backUp } from '../../../daemon/backup/backup.ts'
import { type RestoreOptions, type RestoreSummary, restore } from '../../../daemon/backup/restore.ts'
import { readConfig } from '../../../daemon/config.ts'
import { takeCheckpoint } from '../../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../../src/audit/checkpoints/local-copies.ts'
import { createSigner } from '../../../src/audit/checkpoints/signer.ts'
import { pruneChain } from '../../../src/audit/retention/jobs.ts'
import { toDraftEntry } from '../../../src/audit/rules.ts'
import { createCipher } from '../../../src/core/cipher.ts'
import { encryptedColumns } from '../../../src/core/encrypted-columns.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import type { Dialect } from '../../../src/storage/db.ts'
import { encryptionContext } from '../../../src/storage/encrypted-values.ts'
import { openStorage, type Storage } from '../../../src/storage/open.ts'
import { addRollout } from '../../agents/rollouts/records.ts'
import { happening } from '../../audit/rows.ts'
import { type Open, openMigrated, temporaryFolder } from '../../databases.ts'
import { startService, testSecrets } from '../../harness.ts'
import { schemaOf } from '../../laws/schema.ts'
import { emptyDatabase } from '../../postgres-databases.ts'
import { addCommand, addWebhook, buildWorld, type World } from '../../world.ts'

export type Place = { dataDir: string; databaseUrl?: string | undefined }
export type Filled = Place & { world: World }

type AnyDb = Kysely<Record<string, Record<string, unknown>>>

export const kinds: readonly Dialect[] = ['sqlite', 'postgres']

/** A database without a table, and a data directory without a file. */
export async function emptyPlace(kind: Dialect): Promise<Place> {
  const dataDir = await temporaryFolder()
  if (kind === 'sqlite') return { dataDir }
  const { url, close } = await emptyDatabase()
  try {
    onTestFinished(close)
  } catch {
    // Dropped with the server.
  }
  return { dataDir, databaseUrl: url }
}

/** Runs `work` in the environment of a service on this database. */
export async function inEnvironmentOf<T>(
  { databaseUrl }: Place,
  work: () => Promise<T>,
  env: Partial<typeof testSecrets> = {},
): Promise<T> {
  vi.stubEnv('DATABASE_URL', databaseUrl ?? '')
  for (const [name, value] of Object.entries({ ...testSecrets, ...env })) vi.stubEnv(name, value)
  try {
    return await work()
  } finally {
    vi.unstubAllEnvs()
  }
}

export const backupOf = (place: Place, more: Partial<BackupOptions> = {}): Promise<BackupSummary> =>
  inEnvironmentOf(place, async () => {
    const out = more.out ?? join(await temporaryFolder(), 'of.backup')
    return backUp({ ...more, out, 'data-dir': place.dataDir }, () => {})
  })

export const restored = (
  place: Place,
  file: string,
  more: Partial<RestoreOptions> = {},
  env: Partial<typeof testSecrets> = {},
): Promise<RestoreSummary> =>
  inEnvironmentOf(place, () => restore({ ...more, file, 'data-dir': place.dataDir }, () => {}), {
    ...testSecrets,
    ...env,
  })

export async function withStorage<T>(place: Place, work: (storage: Storage) => Promise<T>): Promise<T> {
  const storage = await openStorage(place)
  return work(storage).finally(() => storage.close())
}

/** A database in which every table has a row: those of a world, real chains with an anchor, and made-up ones. */
export async function filledPlace(kind: Dialect): Promise<Filled> {
  const database = await openMigrated(kind)
  const open: Open = async () => database
  const service = await startService(open)
  const world = await buildWorld(service)
  const { bakery } = world.orgs
  await addWebhook(service, bakery.id, 'tickets', ['device.updated'])
  await addRollout(service, 'running')
  await addCommand(service, bakery.id, bakery.deviceId, { isAnswered: false })
  await service.close()
  const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
  await withStorage(place, async (storage) => {
    await pruneBakery(storage, place, bakery.id)
    await fillRest(storage, bakery.deviceId)
  })
  await mkdir(join(place.dataDir, 'outbox'), { recursive: true })
  await writeFile(join(place.dataDir, 'outbox', 'mail.json'), '{"to":"a@example.com"}\n')
  return { ...place, world }
}

/** Every chain is signed, and one of them loses its beginning to an anchor. */
async function pruneBakery(storage: Storage, { dataDir }: Place, orgId: string): Promise<void> {
  const { signing } = readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir })
  const parts = {
    storage,
    signer: createSigner(storage, signing),
    localCopies: localCopiesIn(join(dataDir, 'checkpoints')),
    clock: systemClock,
    archive: undefined,
    onRefusal() {},
    log: { warn() {} } as never,
  }
  for (const chain of ['system', orgId]) await takeCheckpoint(parts, chain)
  const late = { ...parts, clock: () => addSeconds(systemClock(), 4000 * 86_400) }
  await pruneChain(late, orgId, { milliseconds: 5000, entries: 2 })
}

/** Characters whose order differs between UTF-8 and UTF-16, and what JSON escapes. */
const odd = ['\u{1F600}', '\uFF5E', 'é', '"', '\\', '\n', '\u2028', "'", 'z']

async function fillRest(storage: Storage, deviceId: string): Promise<void> {
  const draft = toDraftEntry(happening(null, { resourceName: 'waits to be sealed' }), systemClock())
  await storage.write(async (tx) => {
    await tx
      .insertInto('outbox')
      .values({ chain: 'system', entry: JSON.stringify(draft) })
      .execute()
    const tags = odd.flatMap((one) => Array.from({ length: 120 }, (_, n) => `${one}${n}`))
    const rows = tags.map((tag) => ({ device_id: deviceId, tag }))
    await tx.insertInto('device_tags').values(rows).execute()
  })
  await fillEmptyTables(storage)
}

/** A row for each table that has none, of whichever version the database is. */
export async function fillEmptyTables(storage: Storage): Promise<void> {
  const schema = await schemaOf(storage)
  const waiting = new Set(Object.keys(schema).filter((name) => name !== 'svc_migrations'))
  for (let round = 0; round < 10 && waiting.size > 0; round++) {
    for (const name of waiting) if (await fillTable(storage, name, schema[name]!)) waiting.delete(name)
  }
  if (waiting.size > 0) throw new Error(`still empty: ${[...waiting].join()}`)
}

/** False while a table that it refers to has no row. */
async function fillTable(
  storage: Storage,
  name: string,
  { columns, foreignKeys, primaryKey }: Awaited<ReturnType<typeof schemaOf>>[string],
): Promise<boolean> {
  const db = storage.read as unknown as AnyDb
  const found = await db.selectFrom(name).selectAll().limit(1).executeTakeFirst()
  if (found) return true
  const row: Record<string, unknown> = {}
  for (const { name: column, kind } of columns) {
    // The database counts it up.
    if (kind === 'integer' && primaryKey.join() === column) continue
    const [, parent, key] =
      foreignKeys
        .map((one) => /^(\w+) -> (\w+)\((\w+)\)/.exec(one) ?? [])
        .find(([, own]) => own === column)
        ?.slice(1) ?? []
    if (parent !== undefined && key !== undefined && parent !== name) {
      const of = await db.selectFrom(parent).select(key).limit(1).executeTakeFirst()
      if (!of) return false
      row[column] = of[key]
    } else if (parent === name) row[column] = null
    else row[column] = kind === 'text' ? `${column} ${odd.join('')}` : kind === 'real' ? 0.1 : 2 ** 30 + 1
  }
  for (const one of encryptedColumns.filter(({ table }) => table === name)) {
    const place = encryptionContext(one, row as Record<string, string>)
    row[one.column] = createCipher([testSecrets.APP_ENCRYPTION_KEY]).encrypt('made up', place)
  }
  await storage.write((tx) => (tx as unknown as AnyDb).insertInto(name).values(row).execute())
  return true
}

export const someFile = async (): Promise<string> =>
  join(await temporaryFolder(), randomBytes(4).toString('hex'))
