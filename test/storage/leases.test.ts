import { describe, expect, it, onTestFinished } from 'vitest'
import { newId } from '../../src/core/new-id.ts'
import { findStrandedLeases, leaseSeconds, leasesOn } from '../../src/storage/leases.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { openMigrated } from '../databases.ts'
import { testClock } from '../harness.ts'

/** Three processes on one database: a connection pool and leases each. */
async function three() {
  const { storage, databaseUrl, dataDir } = await openMigrated('postgres').then((database) => {
    onTestFinished(database.close)
    return database
  })
  const others = [await openStorage({ dataDir, databaseUrl }), await openStorage({ dataDir, databaseUrl })]
  for (const one of others) onTestFinished(() => one.close())
  const clock = testClock()
  const processes = [storage, ...others].map((own) => {
    const leases = leasesOn(own, { holder: newId(), clock })
    leases.add('work')
    return leases
  })
  return { storage, clock, processes, heldBy: () => processes.map((one) => one.isHeld('work')) }
}

const countUp = (storage: Storage) =>
  storage.write((tx) =>
    tx
      .insertInto('probes')
      .values({ id: 2, at: 'x' } as never)
      .execute(),
  )
const counted = async (storage: Storage) =>
  (await storage.read.selectFrom('probes').selectAll().execute()).length

describe('a lease on Postgres', () => {
  it('has one of three processes that ask at once, until that one releases it', async () => {
    const { processes, heldBy } = await three()
    await Promise.all(processes.map((one) => one.renew()))
    expect(heldBy().filter(Boolean)).toHaveLength(1)
    const first = heldBy().indexOf(true)
    await Promise.all(processes.map((one) => one.renew()))
    expect(heldBy().indexOf(true)).toBe(first)
    await processes[first]!.release()
    for (const one of processes.toSpliced(first, 1)) await one.renew()
    expect(heldBy().filter(Boolean)).toHaveLength(1)
    expect(heldBy()[first]).toBe(false)
  })

  it('is taken over once it has expired, and no write of its former holder takes effect', async () => {
    const { storage, clock, processes, heldBy } = await three()
    const [frozen, other] = processes
    await frozen!.renew()
    const fenced = frozen!.fenced('work')
    expect(await other!.renew()).toBe(leaseSeconds * 1000)
    expect(heldBy()).toEqual([true, false, false])
    clock.forward(leaseSeconds)
    await other!.renew()
    // As it comes back: by its own clock it still has the lease.
    expect(heldBy()).toEqual([true, true, false])
    const before = await counted(storage)
    await expect(countUp(fenced)).rejects.toMatchObject({ name: 'LeaseLostError' })
    expect(await counted(storage)).toBe(before)
    await frozen!.renew()
    expect(heldBy()).toEqual([false, true, false])
    await countUp(other!.fenced('work'))
    expect(await counted(storage)).toBe(before + 1)
  })

  it('is not taken over before a write of its holder has ended', async () => {
    const { storage, clock, processes, heldBy } = await three()
    const [slow, other] = processes
    await slow!.renew()
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const write = slow!.fenced('work').write(async () => {
      begun.resolve()
      await ended.promise
    })
    await begun.promise
    clock.forward(leaseSeconds)
    await other!.renew()
    expect(heldBy()[1]).toBe(false)
    // A renewal does not wait for the write.
    await slow!.renew()
    ended.resolve()
    await write
    expect((await storage.read.selectFrom('leases').select('epoch').execute())[0]).toEqual({ epoch: 1 })
  })

  it('with a time that no process writes is taken at once, and one without a holder is reported', async () => {
    const { storage, clock, processes, heldBy } = await three()
    await processes[0]!.renew()
    await storage.write((tx) =>
      tx.updateTable('leases').set({ holder: 'x', expires_at: '2999-01-01T00:00:00.000Z' }).execute(),
    )
    await processes[1]!.renew()
    expect(heldBy()[1]).toBe(true)
    await storage.write((tx) =>
      tx
        .insertInto('leases')
        .values([
          { name: 'given-up', holder: null, epoch: 1, expires_at: clock() },
          { name: 'other', holder: newId(), epoch: 1, expires_at: clock() },
        ])
        .execute(),
    )
    expect(await findStrandedLeases(storage.read, clock())).toEqual({ stranded: [], isAnyHeld: true })
    clock.forward(601)
    await processes[1]!.renew()
    const { stranded, isAnyHeld } = await findStrandedLeases(storage.read, clock())
    expect([stranded.map(({ name }) => name), isAnyHeld]).toEqual([['other'], true])
    clock.forward(86_400)
    await processes[1]!.renew()
    const left = await storage.read.selectFrom('leases').select('name').orderBy('name').execute()
    // Of names that no process of this version has, none stays for more than a day.
    expect(left.map(({ name }) => name)).not.toContain('other')
    expect(left.map(({ name }) => name)).not.toContain('given-up')
    expect(left.length).toBeGreaterThan(0)
  })
})

it('a lease on SQLite is always held and stores nothing', async () => {
  const { storage, close } = await openMigrated('sqlite')
  onTestFinished(close)
  const leases = leasesOn(storage, { holder: newId(), clock: testClock() })
  leases.add('work')
  await leases.renew()
  expect(leases.isHeld('work')).toBe(true)
  expect(leases.fenced('work')).toBe(storage)
  expect(await storage.read.selectFrom('leases').selectAll().execute()).toEqual([])
})
