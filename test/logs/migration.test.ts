import { expect, it } from 'vitest'
import { up } from '../../migrations/0020_log_tails.ts'
import { newId } from '../../src/core/new-id.ts'
import { insertDiagnosticLogs } from '../../src/logs/diagnostic/store.ts'
import { lastSequence } from '../../src/logs/sequence.ts'
import { type AnyDb, schemaFor } from '../../src/storage/columns.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { placedOf } from './sequence.ts'

onEveryDatabase((kind, open) => {
  it('the migration numbers existing logs in the order they were received', async () => {
    const service = await startService(open)
    const { bakery, garage } = (await buildWorld(service)).orgs
    const { storage } = service
    const log = (org: typeof bakery, message: string, createdAt: string) => ({
      id: newId(),
      deviceId: org.deviceId,
      orgId: org.id,
      message,
      createdAt,
      level: 'info' as const,
      timestamp: createdAt,
      component: 'ws',
      fields: null,
      agentVersion: null,
    })
    const at = (minute: number) => `2026-03-01T11:0${minute}:00.000Z`
    await storage.write(async (tx) => {
      const own = [log(bakery, 'second', at(2)), log(bakery, 'third', at(2)), log(bakery, 'first', at(1))]
      await insertDiagnosticLogs(tx, await placedOf(tx, bakery, own))
      const other = [log(garage, 'first', at(1))]
      await insertDiagnosticLogs(tx, await placedOf(tx, garage, other))
    })
    await storage.write(async (tx) => {
      const db = tx as unknown as AnyDb
      for (const table of ['agent_logs', 'device_event_logs']) {
        await db.schema.dropIndex(`${table}_seq`).execute()
        await db.schema.alterTable(table).dropColumn('seq').execute()
      }
      for (const column of ['log_seq', 'told_addresses']) {
        await db.schema.alterTable('devices').dropColumn(column).execute()
      }
      await up(schemaFor(db, kind))
    })
    const rows = storage.read
      .selectFrom('agent_logs')
      .select(['seq', 'message'])
      .where('device_id', '=', bakery.deviceId)
    expect(await rows.orderBy('seq').execute()).toEqual([
      { seq: 1, message: 'first' },
      { seq: 2, message: 'second' },
      { seq: 3, message: 'third' },
    ])
    expect(await lastSequence(storage.read, bakery.deviceId)).toBe(3)
    expect(await lastSequence(storage.read, garage.deviceId)).toBe(1)
  })
})
