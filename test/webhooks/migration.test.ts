import { expect, it } from 'vitest'
import { up } from '../../migrations/0031_webhook_counts.ts'
import { type AnyDb, schemaFor } from '../../src/storage/columns.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

onEveryDatabase((kind, open) => {
  it('the migration of the counts of webhooks to their own table keeps their values', async () => {
    const service = await startService(open)
    const { bakery, garage } = (await buildWorld(service)).orgs
    const { storage } = service
    const counts = { success_count: 2 ** 40, failure_count: 3, last_delivery_at: 'b', last_success_at: 'a' }
    const none = { success_count: 0, failure_count: 0, last_delivery_at: null, last_success_at: null }
    await storage.write(async (tx) => {
      const db = tx as unknown as AnyDb
      const { bigint, text } = schemaFor(db, kind)
      await db.schema.dropTable('webhook_counts').execute()
      for (const column of ['success_count', 'failure_count'])
        await db.schema
          .alterTable('webhook_queues')
          .addColumn(column, bigint, (c) => c.notNull().defaultTo(0))
          .execute()
      for (const column of ['last_delivery_at', 'last_success_at'])
        await db.schema.alterTable('webhook_queues').addColumn(column, text).execute()
      await db.updateTable('webhook_queues').set(counts).where('webhook_id', '=', bakery.webhookId).execute()
      await up(schemaFor(db, kind))
    })
    const found = (id: string) =>
      storage.read
        .selectFrom('webhook_counts')
        .selectAll()
        .where('webhook_id', '=', id)
        .executeTakeFirstOrThrow()
    expect(await found(bakery.webhookId)).toEqual({ webhook_id: bakery.webhookId, ...counts })
    expect(await found(garage.webhookId)).toEqual({ webhook_id: garage.webhookId, ...none })
    const [queue] = await storage.read.selectFrom('webhook_queues').selectAll().limit(1).execute()
    expect(Object.keys(queue!).sort()).toEqual(['due_at', 'holder', 'last_seq', 'org_id', 'webhook_id'])
  })
})
