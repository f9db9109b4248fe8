import { expect } from 'vitest'
import type { TestService } from '../harness.ts'
import { addWebhook } from '../world.ts'

/** Heartbeat changes are checked every second. */
const soon = { timeout: 10_000 }

/** Adds a disabled webhook for all events of an organization, which keeps them; returns its ID. */
export async function addKeeper(service: TestService, orgId: string): Promise<string> {
  const { id } = await addWebhook(service, orgId, 'listener', ['*'])
  await service.storage.write((tx) =>
    tx.updateTable('webhooks').set({ status: 'disabled' }).where('id', '=', id).execute(),
  )
  return id
}

/** Returns a function that gives the events of an organization since the call, in order. */
export async function listen(service: TestService, orgId: string) {
  const { storage } = service
  const id = await addKeeper(service, orgId)
  return async () => {
    await expect
      .poll(async () => (await storage.read.selectFrom('events').select('seq').execute()).length, soon)
      .toBe(0)
    const rows = await storage.read
      .selectFrom('webhook_deliveries')
      .select(['event as type', 'payload', 'org_id'])
      .where('webhook_id', '=', id)
      .orderBy('seq')
      .execute()
    expect(rows.every(({ org_id }) => org_id === orgId)).toBe(true)
    return rows.map(({ type, payload }) => ({ type, data: JSON.parse(payload) as Record<string, unknown> }))
  }
}
