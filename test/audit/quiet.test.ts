import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { sealPending, sealPendingFor } from '../../src/audit/outbox.ts'
import { chainOf, toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { type Scope, systemScope } from '../../src/core/scope.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import { inTurn, openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { partsOn } from './chains.ts'
import { happening } from './rows.ts'

const at = '2026-03-01T12:00:00.000Z'

const orgScope = (orgId: string): Scope => ({ kind: 'organization', orgId, siteIds: null, groupIds: null })

/** Adds pending entries that are not sealed yet. */
async function addPending(tx: Db, chain: string, count: number): Promise<void> {
  const entry = () => JSON.stringify(toDraftEntry(happening(chain === 'system' ? null : chain), at))
  const values = Array.from({ length: count }, () => ({ chain, entry: entry() }))
  await tx.insertInto('outbox').values(values).execute()
}

/** Counts transactions, and writes to the given chains in each of them like another process. */
function withOtherWriters(
  storage: Storage,
  chains: readonly string[],
): { storage: Storage; count: () => number } {
  let count = 0
  const write: Storage['write'] = (work, options) =>
    storage.write(async (tx) => {
      count += 1
      if (count > 100) throw new Error('it goes on as long as others write')
      for (const chain of chains) await addPending(tx, chain, 1)
      return work(tx)
    }, options)
  return { storage: { ...storage, write }, count: () => count }
}

const pendingOf = async ({ read }: Storage, chain: string): Promise<number> =>
  (await read.selectFrom('outbox').select('id').where('chain', '=', chain).execute()).length

inTurn((open) => {
  const [idleChain, busyChain] = [newId(), newId()]
  const others = Array.from({ length: 30 }, newId)

  it('a reader goes on where the database takes no changes, and not where it is out of reach', async () => {
    const { storage } = await open()
    await storage.write((tx) => addPending(tx, idleChain, 1))
    const failingWith = (code: string): Storage => ({
      ...storage,
      write: () => Promise.reject(Object.assign(new Error(code), { code })),
    })
    for (const code of ['ECONNREFUSED', '28P01'])
      await expect(sealPendingFor(failingWith(code), systemScope, idleChain)).rejects.toThrow(code)
    for (const code of ['SQLITE_FULL', '25006', 'SQLITE_CORRUPT', 'a bug'])
      await sealPendingFor(failingWith(code), systemScope, idleChain)
    expect(await pendingOf(storage, idleChain)).toBe(1)
    expect(await sealPending(failingWith('a bug'))).toMatchObject([{ message: 'a bug' }])
  })

  async function crowded() {
    const database = await open()
    await database.storage.write(async (tx) => {
      for (const chain of others) await addPending(tx, chain, 50)
      await addPending(tx, busyChain, 450)
      await addPending(tx, idleChain, 3)
    })
    return database
  }

  it('a reader of one chain waits for that chain only, up to the entries pending at the start', async () => {
    const { storage } = await crowded()
    const world = withOtherWriters(storage, [busyChain, ...others])
    await sealPendingFor(world.storage, orgScope(idleChain))
    expect(world.count()).toBe(1)
    expect(await pendingOf(storage, idleChain)).toBe(0)
    expect(await pendingOf(storage, others[0]!)).toBe(51)
    await sealPendingFor(world.storage, systemScope, busyChain)
    // Batches of 200, and none for entries that were added meanwhile.
    expect(world.count()).toBe(4)
    expect(await pendingOf(storage, busyChain)).toBeGreaterThan(0)
    expect(await pendingOf(storage, others[0]!)).toBe(54)
    await sealPendingFor(world.storage, orgScope(newId()))
    expect(world.count()).toBe(4)
  })

  it('a reader of all chains waits for the entries pending at the start', async () => {
    const { storage } = await crowded()
    const world = withOtherWriters(storage, [busyChain, ...others])
    await sealPendingFor(world.storage, systemScope)
    expect(world.count()).toBe(others.length + 3 + 1)
    expect(await pendingOf(storage, idleChain)).toBe(0)
  })

  it('a checkpoint of an idle chain is taken while others are written all the time', async () => {
    const database = await crowded()
    const world = withOtherWriters(database.storage, [busyChain, ...others])
    const { checkpoint } = await takeCheckpoint(partsOn({ ...database, storage: world.storage }), idleChain)
    expect(checkpoint.head.seq).toBe(3)
    expect(world.count()).toBeLessThan(6)
    expect(await pendingOf(database.storage, others[0]!)).toBeGreaterThan(49)
  })

  it('a chain that grows all the time does not keep the sealer from other chains', async () => {
    const { storage } = await crowded()
    const noisy = withOtherWriters(storage, [])
    const write: Storage['write'] = (work, options) =>
      noisy.storage.write(async (tx) => {
        await addPending(tx, busyChain, 250)
        return work(tx)
      }, options)
    await sealPending({ ...noisy.storage, write })
    expect(noisy.count()).toBeGreaterThan(100)
    for (const chain of [idleChain, ...others]) expect(await pendingOf(storage, chain)).toBe(0)
  })
})

it('on Postgres a lock on the end of one chain blocks no reader of another', async () => {
  const service = await startService(() => openMigrated('postgres'))
  const { tokens, orgs } = await buildWorld(service)
  const held = orgs.garage.id
  const bakery = service.client(tokens.bakery)
  const release = Promise.withResolvers<void>()
  const locked = Promise.withResolvers<void>()
  const holding = service.storage.write(async (tx) => {
    await tx.selectFrom('audit_heads').select('seq').where('chain', '=', held).forUpdate().execute()
    locked.resolve()
    await release.promise
  })
  await locked.promise
  try {
    await service.client(tokens.garage).call(api.sites.create, { body: { orgId: held, name: 'Held' } })
    expect(await pendingOf(service.storage, chainOf(held))).toBeGreaterThan(0)
    const begun = performance.now()
    const { data } = await bakery.call(api.auditLogs.list)
    await bakery.call(api.auditLogs.flat)
    await bakery.call(api.auditLogs.show, { params: { id: data[0]!.id } })
    await bakery.call(api.auditLogs.search, { query: { q: 'site' } })
    await bakery.call(api.auditLogs.heads)
    for (const report of ['users', 'security', 'compliance', 'stats'] as const)
      await bakery.call(api.auditReports[report])
    await bakery.call(api.auditCheckpoints.checkpoint)
    await bakery.call(api.auditCheckpoints.proof, { query: { id: data[0]!.id } })
    for await (const _ of bakery.stream(api.auditExports.download, { query: { format: 'csv' } }));
    for await (const _ of bakery.stream(api.auditLogs.chain, { query: {} }));
    expect(performance.now() - begun).toBeLessThan(10_000)
  } finally {
    release.resolve()
    await holding
  }
})
