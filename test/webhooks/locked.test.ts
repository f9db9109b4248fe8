import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { reaching, receiver } from './receiver.ts'

/** On SQLite writes run one at a time: there are no locked rows. */
describe.skipIf(!hasOpenssl)('a row of a webhook that another transaction keeps locked', () => {
  const certificate = testCertificate()

  async function begin() {
    const service = await startService(() => openMigrated('postgres'), { env: reaching(certificate) })
    const { orgs, tokens } = await buildWorld(service)
    const to = await receiver(certificate)
    const system = service.client(tokens.system)
    const of = async (name: 'bakery' | 'garage') => {
      const client = service.client(tokens[name])
      const body = { name, url: `${to.url}/${name}`, events: ['patch.installed' as const] }
      const { id } = await client.call(api.webhooks.create, { body })
      const raise = () =>
        system.call(api.events.create, { body: { orgId: orgs[name].id, type: 'patch.installed', data: {} } })
      const statuses = async () =>
        (await client.call(api.webhookDeliveries.list, { params: { id } })).data.map(({ status }) => status)
      return { id, raise, statuses }
    }
    const other = new pg.Client({ connectionString: service.databaseUrl! })
    await other.connect()
    onTestFinished(() => other.end())
    const lock = async (table: string, id: string) => {
      await other.query('begin')
      await other.query(`select 1 from ${table} where webhook_id = $1 for update`, [id])
    }
    const times = (path: string) => to.got.filter((one) => one.path === `/${path}`).length
    return {
      bakery: await of('bakery'),
      garage: await of('garage'),
      lock,
      unlock: () => other.query('rollback'),
      times,
    }
  }

  const delivered = (count: number) => Array.from({ length: count }, () => 'delivered')
  const patience = { timeout: 20_000 }

  it.each(['webhook_queues', 'webhook_counts'])(
    'in %s delays no delivery of others, and its own are sent once',
    async (table) => {
      const { bakery, garage, lock, unlock, times } = await begin()
      await bakery.raise()
      await expect.poll(bakery.statuses, patience).toEqual(delivered(1))
      await lock(table, bakery.id)
      await bakery.raise()
      for (let n = 0; n < 3; n++) await garage.raise()
      await expect.poll(garage.statuses, patience).toEqual(delivered(3))
      for (let n = 0; n < 3; n++) await garage.raise()
      await expect.poll(garage.statuses, patience).toEqual(delivered(6))
      expect(await bakery.statuses()).not.toEqual(delivered(2))
      await unlock()
      await expect.poll(bakery.statuses, { timeout: 45_000 }).toEqual(delivered(2))
      expect([times('bakery'), times('garage')]).toEqual([2, 6])
    },
  )
})
