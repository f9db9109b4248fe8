import { expect, it, vi } from 'vitest'
import { api } from '../../../src/api.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import type { Db, Storage } from '../../../src/storage/open.ts'
import { onEveryDatabase } from '../../databases.ts'
import { serviceOn } from '../../harness.ts'
import { buildWorld, type World } from '../../world.ts'
import type { Place } from '../process.ts'
import { machine } from '../request.ts'
import { findingsOf, summaryOf } from './findings.ts'

vi.setConfig({ testTimeout: 90_000 })

/* What the doctor reads in the rows of the service, beside what test/daemon/doctor.test.ts has. */

const day = 86_400
const inDays = (days: number) => addSeconds(systemClock(), days * day)

onEveryDatabase((kind, open) => {
  type Work = (
    world: World,
    client: ReturnType<Awaited<ReturnType<typeof serviceOn>>['client']>,
  ) => Promise<void>

  /** A world on a service that has ended, after `work`. */
  async function ended(work: Work = async () => {}) {
    const { storage, ...place } = await open()
    const service = await serviceOn(place)
    const world = await buildWorld(service)
    await work(world, service.client(world.tokens.bakery))
    await service.close()
    const change = (write: (tx: Db) => Promise<unknown>) =>
      storage.write(async (tx) => void (await write(tx)))
    return { storage: storage as Storage, place: place as Place, world, change }
  }

  const foundBy = async (place: Place, name: string) =>
    summaryOf((await findingsOf(place)).filter(({ check }) => check === name))

  it('many devices that are offline at once are a finding, and a few are not', async () => {
    const { place, world, change } = await ended(async ({ orgs }, client) => {
      const { key } = await client.call(api.enrollmentKeys.create, {
        body: { orgId: orgs.bakery.id, name: 'tills', maxUsage: 20 },
      })
      for (let n = 0; n < 9; n++) await client.call(api.agents.enroll, { body: machine(key, `till-${n}`) })
    })
    const go = (hostnames: string[]) =>
      change((tx) =>
        tx.updateTable('devices').set({ status: 'offline' }).where('hostname', 'in', hostnames).execute(),
      )
    await change((tx) => tx.updateTable('devices').set({ status: 'online' }).execute())
    await go(['till-0', 'till-1'])
    expect(await foundBy(place, 'devices')).toEqual([])
    await go(['till-2'])
    expect(await foundBy(place, 'devices')).toEqual([['devices', 'warning', '3 of 12 devices are offline.']])
    // What is out of use is no longer silent.
    await change((tx) =>
      tx
        .updateTable('devices')
        .set({ status: 'decommissioned' })
        .where('org_id', '=', world.orgs.bakery.id)
        .where('status', '=', 'offline')
        .execute(),
    )
    expect(await foundBy(place, 'devices')).toEqual([])
  })

  it('API keys are counted that expire within two weeks', async () => {
    const { place } = await ended(async ({ orgs }, client) => {
      for (const [name, days] of [
        ['backup', 3],
        ['inventory', 13],
        ['next year', 300],
      ] as const) {
        const body = { orgId: orgs.bakery.id, name, expiresAt: inDays(days) }
        await client.call(api.apiKeys.create, { body })
      }
    })
    expect(await foundBy(place, 'API keys')).toEqual([
      ['API keys', 'warning', '2 API keys expire within 14 days.'],
    ])
  })

  it('chains that nobody verified for two days are overdue', async () => {
    const { place, world, change } = await ended()
    const { bakery, garage } = world.orgs
    const verified = (chain: string, checked_at: string) =>
      change((tx) => {
        const row = { verdict: 'sound', fault: null, entries: 1, checked_at, seal: null }
        return tx
          .insertInto('audit_verdicts')
          .values({ chain, ...row })
          .onConflict((c) => c.column('chain').doUpdateSet(row))
          .execute()
      })
    await change((tx) => tx.deleteFrom('audit_verdicts').execute())
    await verified(bakery.id, inDays(-1))
    expect(await foundBy(place, 'audit log')).toEqual([])
    const since = inDays(-3)
    await verified(garage.id, since)
    expect(await foundBy(place, 'audit log')).toEqual([
      ['audit log', 'warning', `1 of 2 chains were not verified for two days or longer, one since ${since}.`],
    ])
  })

  it.runIf(kind === 'postgres')(
    'work that no process has taken up is named while another process serves',
    async () => {
      const { place, change } = await ended()
      const since = addSeconds(systemClock(), -3600)
      const lease = { holder: 'a process', epoch: 1 }
      await change(async (tx) => {
        await tx.deleteFrom('leases').execute()
        await tx
          .insertInto('leases')
          .values({ name: 'sealing', ...lease, expires_at: since })
          .execute()
      })
      // None is held: nobody serves the database at all.
      expect(await foundBy(place, 'leases')).toEqual([])
      await change((tx) =>
        tx
          .insertInto('leases')
          .values({ name: 'retention', ...lease, expires_at: addSeconds(systemClock(), 20) })
          .execute(),
      )
      expect(await foundBy(place, 'leases')).toEqual([
        ['leases', 'warning', `No process has taken up this background work: sealing (since ${since}).`],
      ])
    },
  )
})
