import { randomBytes } from 'node:crypto'
import type { Kysely } from 'kysely'
import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import type { Storage } from '../../src/storage/open.ts'
import { happening } from '../audit/rows.ts'
import { testCertificate } from '../cli/network.ts'
import { emptyPlace, fillEmptyTables, kinds, type Place, withStorage } from '../daemon/backup/filled.ts'
import { ServeProcess, serviceEnv, until } from '../daemon/process.ts'
import { readChain } from '../daemon/request.ts'
import { depth } from '../depth.ts'
import { schemaOf } from '../laws/schema.ts'
import { receiver } from '../webhooks/receiver.ts'
import { fill, type Installation, signedIn, use } from './installation.ts'
import { programBefore } from './version-before.ts'

type AnyDb = Kysely<Record<string, Record<string, unknown>>>

const entries = depth(2000, 200_000)
const devices = depth(250, 10_000)

const certificate = testCertificate()
const env = {
  ...serviceEnv,
  ENABLE_2FA: 'false',
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
  OUTBOUND_CA_FILE: certificate.file,
}

const ended = { code: 0, signal: null }
/** Rows of one statement: a device has some 70 columns, and SQLite takes 32,766 values. */
const batch = 200

/** Audit entries that wait for the version before, which chains them. */
async function addEntries(storage: Storage, orgId: string): Promise<void> {
  for (let from = 0; from < entries; from += batch) {
    const rows = Array.from({ length: Math.min(batch, entries - from) }, (_, n) => ({
      chain: orgId,
      entry: JSON.stringify(
        toDraftEntry(
          happening(orgId, { action: 'pile.up', resourceName: `number ${from + n}` }),
          systemClock(),
        ),
      ),
    }))
    await storage.write((tx) => tx.insertInto('outbox').values(rows).execute())
  }
}

/** Devices like the one that there is. */
async function addDevices(storage: Storage): Promise<void> {
  const db = storage.read as unknown as AnyDb
  const like = await db.selectFrom('devices').selectAll().limit(1).executeTakeFirstOrThrow()
  const secret = () => randomBytes(32).toString('hex')
  for (let from = 0; from < devices; from += batch) {
    const rows = Array.from({ length: Math.min(batch, devices - from) }, (_, n) => ({
      ...like,
      id: newId(),
      agent_id: secret(),
      token_hash: secret(),
      watchdog_token_hash: secret(),
      hostname: `machine-${from + n}`,
      hostname_key: `machine-${from + n}`,
    }))
    await storage.write((tx) => (tx as unknown as AnyDb).insertInto('devices').values(rows).execute())
  }
}

/** Waits until the service that runs there has chained all entries. */
const sealed = (place: Place) =>
  withStorage(place, ({ read }) => {
    const waiting = read.selectFrom('outbox').select('id').limit(1)
    return until(async () => (await waiting.executeTakeFirst()) === undefined, 600_000)
  })

const emptyTables = (place: Place) =>
  withStorage(place, async (storage) => {
    const db = storage.read as unknown as AnyDb
    const empty: string[] = []
    for (const table of Object.keys(await schemaOf(storage)))
      if (!(await db.selectFrom(table).selectAll().limit(1).executeTakeFirst())) empty.push(table)
    return empty
  })

async function countDevices(url: string, { orgId }: Installation): Promise<number> {
  const client = await signedIn(url)
  return (await client.call(api.devices.list, { query: { orgId, limit: 1 } })).pagination.total!
}

it.each(kinds)(
  'a large database of the version before goes on with this one, on %s',
  { timeout: 1_800_000 },
  async (kind) => {
    const place = await emptyPlace(kind)
    const to = await receiver(certificate)
    const startBefore = async () => new ServeProcess(place, { env, program: await programBefore() })

    let service = await startBefore()
    const made = await fill(await service.listening(), to)
    await use(await service.listening(), made, 'before')
    expect(await service.stop()).toEqual(ended)
    await withStorage(place, async (storage) => {
      await addEntries(storage, made.orgId)
      await addDevices(storage)
    })
    service = await startBefore()
    await service.listening()
    await sealed(place)
    expect(await service.stop()).toEqual(ended)
    await withStorage(place, fillEmptyTables)
    expect(await emptyTables(place)).toEqual([])

    service = new ServeProcess(place, { env })
    const url = await service.listening()
    expect(await countDevices(url, made)).toBe(devices + 1)
    await use(url, made, 'new')
    const { entries: all } = await readChain(await signedIn(url), made.orgId)
    expect(all.filter(({ action }) => action === 'pile.up')).toHaveLength(entries)
    expect(await service.stop()).toEqual(ended)
  },
)
