import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { backUp } from '../../../daemon/backup/backup.ts'
import { readConfig } from '../../../daemon/config.ts'
import { checkKeys } from '../../../daemon/key-fingerprints.ts'
import { migrations } from '../../../migrations/index.ts'
import { api } from '../../../src/api.ts'
import { verifyStoredChain } from '../../../src/audit/checkpoints/chain-verification.ts'
import { localCopiesIn } from '../../../src/audit/checkpoints/local-copies.ts'
import { createSigner } from '../../../src/audit/checkpoints/signer.ts'
import { VerificationState } from '../../../src/audit/checkpoints/verification.ts'
import { createCipher } from '../../../src/core/cipher.ts'
import { systemClock } from '../../../src/core/time.ts'
import { insertUser } from '../../../src/identity/store.ts'
import { migrate, pendingMigrations } from '../../../src/storage/migrate.ts'
import { serviceOn, testSecrets } from '../../harness.ts'
import { systemToken } from '../../world.ts'
import { bytesOf, fileOf, linesOf, packed, sealed, withCell } from './archives.ts'
import {
  backupOf,
  emptyPlace,
  type Filled,
  filledPlace,
  inEnvironmentOf,
  kinds,
  type Place,
  restored,
  someFile,
  withStorage,
} from './filled.ts'

let filled: Filled
let file: string
beforeAll(async () => {
  filled = await filledPlace('postgres')
  file = (await backupOf(filled)).file
})

const otherKey = 'xm1oHhdB0bOsHdQEhNmQkK5UXq1nB7F8lkT6nGkJ3sA='

describe.each(kinds)('a database restored to %s', (kind) => {
  it('sends nothing by itself, and says why', async () => {
    const place = await emptyPlace(kind)
    const { madeAt } = await restored(place, file)
    const reason = new RegExp(`^the database was restored at \\S+ from a backup of ${madeAt}$`)
    const { bakery } = filled.world.orgs
    await withStorage(place, async ({ read }) => {
      const waiting = read.selectFrom('webhook_deliveries').selectAll().where('due_at', 'is not', null)
      expect(await waiting.execute()).toEqual([])
      const queues = read.selectFrom('webhook_queues').selectAll()
      expect((await queues.execute()).filter((one) => one.due_at !== null || one.holder !== null)).toEqual([])
      const open = read.selectFrom('agent_commands').selectAll().where('status', 'in', ['pending', 'sent'])
      expect(await open.execute()).toEqual([])
      const stored = read.selectFrom('agent_commands').select(['device_id', 'result'])
      const bytes = (await stored.where('device_id', '=', bakery.deviceId).execute()).map(({ result }) =>
        Buffer.byteLength(result ?? ''),
      )
      const device = read.selectFrom('devices').select('command_bytes').where('id', '=', bakery.deviceId)
      expect(await device.execute()).toEqual([{ command_bytes: bytes.reduce((sum, one) => sum + one, 0) }])
    })
    const service = await serviceOn(place)
    const client = service.client(await systemToken(service))
    const { data: rollouts } = await client.call(api.agentRollouts.list, { query: {} })
    expect(rollouts.filter(({ status }) => ['running', 'preparing'].includes(status))).toEqual([])
    expect(rollouts.find(({ status }) => status === 'halted')?.haltReason).toMatch(reason)
    const { data: webhooks } = await client.call(api.webhooks.list, { query: { orgId: bakery.id } })
    expect(webhooks.length).toBeGreaterThan(1)
    for (const { id, status, statusReason } of webhooks) {
      expect([status, statusReason]).toEqual(['paused', expect.stringMatching(reason)])
      const resumed = await client.call(api.webhooks.update, { params: { id }, body: { status: 'active' } })
      expect(resumed).toMatchObject({ status: 'active', statusReason: null })
    }
  })

  it('has chains that the service itself finds sound, and signs on', async () => {
    const place = await emptyPlace(kind)
    await restored(place, file)
    const { signing } = readConfig({ ...testSecrets, SVC_DATA_DIR: place.dataDir })
    await withStorage(place, async (storage) => {
      const deps = {
        storage,
        signer: createSigner(storage, signing),
        localCopies: localCopiesIn(join(place.dataDir, 'checkpoints')),
        clock: systemClock,
        memory: new VerificationState(),
        onRefusal() {},
        onVerdict() {},
      }
      for (const chain of ['system', filled.world.orgs.garage.id, filled.world.orgs.harbor.id]) {
        expect(await verifyStoredChain(deps, chain)).toMatchObject({ chain, verdict: 'sound' })
      }
    })
  })

  it('takes new keys where the loss of the former ones was accepted by name', async () => {
    const place = await emptyPlace(kind)
    const env = { JWT_SECRET: otherKey }
    const summary = await restored(place, file, { 'without-keys': ['JWT_SECRET'] }, env)
    expect(summary.keysLost).toEqual(['JWT_SECRET'])
    await withStorage(place, async (storage) => {
      const config = readConfig({ ...testSecrets, ...env, SVC_DATA_DIR: place.dataDir })
      expect(await checkKeys(storage, config, systemClock())).toEqual({ changed: [], waiting: [] })
      const others = readConfig({ ...testSecrets, SVC_DATA_DIR: place.dataDir })
      await expect(checkKeys(storage, others, systemClock())).rejects.toThrow(/other keys: JWT_SECRET/)
    })
  })

  it('takes the previous key for one that was changed on purpose', async () => {
    const place = await emptyPlace(kind)
    const env = { JWT_SECRET: otherKey, JWT_SECRET_PREVIOUS: testSecrets.JWT_SECRET }
    expect((await restored(place, file, {}, env)).keysLost).toEqual([])
  })

  it('keeps values that did not open when it was backed up, and lets no others in', async () => {
    const source = await emptyPlace(kind)
    await restored(source, file)
    const secretsOf = (place: Place) =>
      withStorage(place, async ({ read }) =>
        (await read.selectFrom('webhooks').select(['id', 'secret']).orderBy('id').execute()).map(
          (one) => one.secret,
        ),
      )
    const lost = createCipher(['a key that is lost'])
    await withStorage(source, async ({ read, write }) => {
      const { id } = await read.selectFrom('webhooks').select('id').orderBy('id').executeTakeFirstOrThrow()
      const secret = lost.encrypt('s', `webhooks.secret.${id}`)
      await write((tx) => tx.updateTable('webhooks').set({ secret }).where('id', '=', id).execute())
    })
    const backup = await backupOf(source)
    const lines = linesOf(await bytesOf(backup.file))
    const unreadable = { 'webhooks.secret': 1 }
    expect(JSON.parse(lines.at(-1)!)).toMatchObject({ unreadable })
    const place = await emptyPlace(kind)
    await restored(place, backup.file)
    expect(await secretsOf(place)).toEqual(await secretsOf(source))

    // Another one that does not open is not among those that did not at the time of the backup.
    const value = () => lost.encrypt('s', 'webhooks.secret.another')
    const more = withCell(lines.slice(0, -1), 'webhooks', { row: 1, column: 'secret', value })
    const forged = await fileOf(packed(sealed(more, unreadable)))
    const other = await emptyPlace(kind)
    await expect(restored(other, forged)).rejects.toThrow(
      /1 value of webhooks\.secret was encrypted with another/,
    )
    const { keysLost } = await restored(other, forged, { 'without-keys': ['APP_ENCRYPTION_KEY'] })
    expect(keysLost).toEqual([])

    // Where the key is not at hand nobody can tell what it does not open.
    const blind = await inEnvironmentOf(
      source,
      async () => backUp({ out: await someFile(), 'data-dir': source.dataDir }, () => {}),
      { APP_ENCRYPTION_KEY: '' },
    )
    expect(JSON.parse(linesOf(await bytesOf(blind.file)).at(-1)!)).not.toHaveProperty('unreadable')
    await expect(restored(await emptyPlace(kind), blind.file)).rejects.toThrow(
      /1 value of webhooks\.secret was/,
    )
  })

  it.runIf(kind === 'postgres')('leaves the directory of another installation alone', async () => {
    const { databaseUrl } = await emptyPlace(kind)
    const other = await emptyPlace('sqlite')
    await restored(other, file)
    const place = { dataDir: other.dataDir, databaseUrl: databaseUrl! }
    const before = await readdir(join(other.dataDir, 'checkpoints'))
    await expect(restored(place, file)).rejects.toThrow(/has the database of another installation/)
    expect(await readdir(join(other.dataDir, 'checkpoints'))).toEqual(before)
  })

  it('of an older schema has the newest one', async () => {
    const [source, place] = [await emptyPlace(kind), await emptyPlace(kind)]
    const older = migrations.filter(({ name }) => name < '0048')
    const user = {
      id: '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
      email: 'old@example.com',
      name: 'Old',
      passwordHash: null,
    }
    await withStorage(source, async (storage) => {
      await migrate(storage, older)
      await storage.write((tx) => insertUser(tx, { ...user, isSystem: true }, systemClock()))
    })
    const backup = await backupOf(source)
    expect(backup.migration).toBe('0047_log_bytes')
    const { migrated } = await restored(place, backup.file)
    expect(migrated).toEqual(migrations.filter(({ name }) => name >= '0048').map(({ name }) => name))
    await withStorage(place, async (storage) => {
      expect(await pendingMigrations(storage, migrations)).toEqual([])
      const found = await storage.read.selectFrom('users').select('email').execute()
      expect(found).toEqual([{ email: 'old@example.com' }])
    })
  })
})

describe('a backup', () => {
  it('of a database of a newer version is refused, and of none', async () => {
    for (const kind of kinds) {
      const place = await emptyPlace(kind)
      await expect(backupOf(place)).rejects.toThrow(
        kind === 'sqlite' ? /There is no database in / : /is empty/,
      )
      await withStorage(place, async (storage) => {
        await migrate(storage, migrations)
        const later = { name: '9999_later', checksum: '0'.repeat(64), applied_at: systemClock() }
        await storage.write((tx) =>
          tx
            .insertInto('svc_migrations' as never)
            .values(later as never)
            .execute(),
        )
      })
      await expect(backupOf(place)).rejects.toThrow(/a newer schema \(9999_later\)/)
    }
  })
})
