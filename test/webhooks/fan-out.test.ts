import { describe, expect, it, onTestFinished } from 'vitest'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { fanOut } from '../../src/webhooks/worker/fan-out.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addWebhook, buildWorld, type World } from '../world.ts'

const many = 60

/**
 * Two organizations: one with many webhooks and events, and one with a single webhook and event, which comes
 * last.
 */
async function busyAndIdle(storage: Storage, { bakery, harbor }: World['orgs']) {
  const busyWebhooks: string[] = []
  for (let n = 0; n < many; n++) {
    busyWebhooks.push(
      (await addWebhook({ storage } as TestService, bakery.id, `${n}`, ['device.offline'])).id,
    )
  }
  const idleWebhook = await addWebhook({ storage } as TestService, harbor.id, 'one', ['device.offline'])
  const event = (orgId: string) => ({
    id: newId(),
    org_id: orgId,
    type: 'device.offline',
    data: '{}',
    created_at: systemClock(),
  })
  const happened = [...Array.from({ length: many }, () => event(bakery.id)), event(harbor.id)]
  await storage.write((tx) => tx.insertInto('events').values(happened).execute())
  return { busyWebhooks, idleWebhook: idleWebhook.id, happened }
}

describe('the fan-out of events', () => {
  onEveryDatabase((_, open) => {
    it('serves an organization in its first batch, beside one with many webhooks and events', async () => {
      const database = await open()
      const service = await startService(async () => database)
      const { orgs } = await buildWorld(service)
      await service.close()
      const storage = await openStorage(database)
      onTestFinished(() => storage.close())
      const { busyWebhooks, idleWebhook, happened } = await busyAndIdle(storage, orgs)
      const deliveriesOf = async (ids: readonly string[]) =>
        storage.read
          .selectFrom('webhook_deliveries')
          .select(['webhook_id', 'seq', 'event_id'])
          .where('webhook_id', 'in', ids)
          .orderBy('webhook_id')
          .orderBy('seq')
          .execute()
      const { more } = await fanOut(storage, systemClock())
      expect([more, (await deliveriesOf([idleWebhook])).length]).toEqual([true, 1])
      while ((await fanOut(storage, systemClock())).more);
      const expected = happened.slice(0, many).map(({ id }) => id)
      for (const id of busyWebhooks) {
        expect((await deliveriesOf([id])).map(({ event_id }) => event_id)).toEqual(expected)
      }
      expect(await storage.read.selectFrom('events').select('seq').execute()).toEqual([])
    })
  })
})
