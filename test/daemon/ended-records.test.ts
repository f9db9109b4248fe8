import { describe, expect, it } from 'vitest'
import { deleteEndedRecords, type RecordDays } from '../../daemon/retention.ts'
import { readDays } from '../../daemon/variables.ts'
import { insertRolloutDevices } from '../../src/agents/rollouts/devices.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import type { Storage } from '../../src/storage/open.ts'
import { addRelease, addRollout } from '../agents/rollouts/records.ts'
import { signedRelease } from '../agents/signed-release.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, type Org } from '../world.ts'

const days: RecordDays = {
  alerts: 10,
  scripts: 10,
  devices: 10,
  keys: 10,
  rollouts: 10,
  releases: 10,
  checkpoints: undefined,
  proofs: undefined,
  archives: undefined,
  applies: 10,
}
const never = Object.fromEntries(Object.keys(days).map((kind) => [kind, undefined])) as RecordDays
const now = systemClock()
const ago = (count: number) => addSeconds(now, -count * 86_400)

/** Ends one record of each kind. */
async function end(storage: Storage, org: Org, at: string, { device = true } = {}): Promise<void> {
  await storage.write(async (tx) => {
    await tx
      .updateTable('alerts')
      .set({ status: 'resolved', resolved_at: at })
      .where('id', '=', org.alertId)
      .execute()
    await tx.updateTable('scripts').set({ deleted_at: at }).where('id', '=', org.scriptId).execute()
    await tx
      .updateTable('api_keys')
      .set({ status: 'revoked', revoked_at: at })
      .where('id', '=', org.apiKeyId)
      .execute()
    await tx.updateTable('enrollment_keys').set({ expires_at: at }).where('id', '=', org.keyId).execute()
    if (!device) return
    const retired = { status: 'decommissioned', updated_at: at }
    await tx.updateTable('devices').set(retired).where('id', '=', org.deviceId).execute()
  })
}

const kinds = {
  alertId: 'alerts',
  scriptId: 'scripts',
  apiKeyId: 'api_keys',
  keyId: 'enrollment_keys',
  deviceId: 'devices',
} as const

async function left({ read }: Storage, org: Org): Promise<string[]> {
  const found: string[] = []
  for (const [id, table] of Object.entries(kinds)) {
    const row = await read
      .selectFrom(table)
      .select('id')
      .where('id', '=', org[id as keyof typeof kinds])
      .executeTakeFirst()
    if (row) found.push(table)
  }
  return found.sort()
}

async function deletions(storage: Storage, chain: string) {
  await sealPending(storage)
  const rows = await storage.read
    .selectFrom('audit_logs')
    .select('canonical')
    .where('chain', '=', chain)
    .where('action', 'like', '%.delete')
    .orderBy('seq')
    .execute()
  return rows
    .map(({ canonical }) => JSON.parse(canonical))
    .filter(({ details }) => details.retention)
    .map(({ action, resourceName, details }) => ({ action, resourceName, deleted: details.deleted }))
}

describe('records that have ended', () => {
  it('are kept for ever with "never" and 0, and for no unclear time', () => {
    expect([readDays({ D: 'never' }, 'D', 5), readDays({ D: '0' }, 'D', 5), readDays({}, 'D', 5)]).toEqual([
      undefined,
      undefined,
      5,
    ])
    for (const D of ['-1', '1.5', 'forever', '36501']) expect(() => readDays({ D }, 'D', 5)).toThrow('never')
    expect(() => readDays({ D: '364' }, 'D', 5, 365)).toThrow('from 365')
  })

  onEveryDatabase((_, open) => {
    it('are deleted after their days, and the audit log keeps their names', async () => {
      const service = await startService(open)
      const { storage } = service
      const { orgs } = await buildWorld(service)
      const { bakery: old, garage: young, harbor: live } = orgs
      await end(storage, old, ago(11))
      await end(storage, young, ago(9))
      await end(storage, live, ago(11), { device: false })
      const all = Object.values(kinds).sort()

      await deleteEndedRecords(storage, never, now)
      expect(await left(storage, old)).toEqual(all)

      const rows = Array.from({ length: 1200 }, (_, n) => ({
        id: newId(),
        device_id: old.deviceId,
        org_id: old.id,
        timestamp: now,
        level: 'info',
        message: 'm',
        created_at: now,
        component: 'x',
        fields: null,
        agent_version: null,
        seq: n + 1,
      }))
      for (let at = 0; at < rows.length; at += 400) {
        await storage.write((tx) =>
          tx
            .insertInto('agent_logs')
            .values(rows.slice(at, at + 400))
            .execute(),
        )
      }
      await deleteEndedRecords(storage, days, now)
      expect(await left(storage, old)).toEqual([])
      expect(await left(storage, young)).toEqual(all)
      // The key that enrolled a device stays with it.
      expect(await left(storage, live)).toEqual(['devices', 'enrollment_keys'])
      for (const table of ['agent_logs', 'agent_commands', 'device_group_devices'] as const) {
        const of = storage.read.selectFrom(table).select('device_id').where('device_id', '=', old.deviceId)
        expect(await of.execute()).toEqual([])
      }
      const said = await deletions(storage, old.id)
      expect(said.map(({ action }) => action).sort()).toEqual([
        'alert.delete',
        'api_key.delete',
        'device.delete',
        'enrollment_key.delete',
        'script.delete',
      ])
      const device = said.find(({ action }) => action === 'device.delete')!
      expect(device.resourceName).toMatch(/\w/)
      expect(device.deleted).toEqual([{ id: old.deviceId, name: device.resourceName }])
      expect(await deletions(storage, young.id)).toEqual([])
    })

    it('counts a revoked key without a time from when it is first seen', async () => {
      const service = await startService(open)
      const { storage } = service
      const { orgs } = await buildWorld(service)
      const id = orgs.bakery.apiKeyId
      await storage.write((tx) =>
        tx.updateTable('api_keys').set({ status: 'revoked' }).where('id', '=', id).execute(),
      )
      const key = () =>
        storage.read.selectFrom('api_keys').select('revoked_at').where('id', '=', id).execute()
      await deleteEndedRecords(storage, days, now)
      expect(await key()).toEqual([{ revoked_at: now }])
      await deleteEndedRecords(storage, days, addSeconds(now, 9 * 86_400))
      expect(await key()).toHaveLength(1)
      await deleteEndedRecords(storage, days, addSeconds(now, 11 * 86_400))
      expect(await key()).toEqual([])
    })

    it('of agents stay while something needs them', async () => {
      const service = await startService(open)
      const { storage } = service
      const { orgs } = await buildWorld(service)
      const { deviceId, id: orgId } = orgs.bakery
      const runs = (version: string) =>
        storage.write((tx) =>
          tx.updateTable('devices').set({ agent_version: version }).where('id', '=', deviceId).execute(),
        )
      await storage.write((tx) => tx.deleteFrom('agent_rollouts').execute())
      const rolloutId = await addRollout(service, 'completed')
      const part = { device_id: deviceId, org_id: orgId, from_version: '1.0.0', is_held: 0, wave: 0 }
      await storage.write(async (tx) => {
        await insertRolloutDevices(tx, rolloutId, [part])
        await tx
          .updateTable('agent_rollouts')
          .set({ ended_at: ago(11) })
          .execute()
      })
      // 0.9.0 is a step to 1.0.0, 9.9.9 is of the rollout, 10.0.0 names a minimum, 11.0.0 is offered.
      const { manifest } = signedRelease('10.0.0', { minimumVersion: '0.5.0' })
      await addRelease(service, '10.0.0', { manifest: manifest.toString() })
      await addRelease(service, '0.9.0')
      await addRelease(service, '1.0.0', { minFrom: '0.9.0' })
      await addRelease(service, '9.9.9')
      await addRelease(service, '11.0.0', { promoted: true })
      await addRelease(service, '12.0.0')
      await runs('9.9.9')
      const versions = async () =>
        (await storage.read.selectFrom('agent_releases').select('version').execute())
          .map(({ version }) => version)
          .sort()
      const rollouts = () => storage.read.selectFrom('agent_rollouts').select('id').execute()
      await deleteEndedRecords(storage, days, now)
      expect(await rollouts()).toEqual([{ id: rolloutId }])
      expect(await versions()).toEqual(['0.9.0', '10.0.0', '11.0.0', '9.9.9'])
      await runs('13.0.0')
      await deleteEndedRecords(storage, days, now)
      expect(await rollouts()).toEqual([])
      expect(await storage.read.selectFrom('agent_rollout_devices').select('wave').execute()).toEqual([])
      expect(await versions()).toEqual(['10.0.0', '11.0.0'])
      const said = await deletions(storage, 'system')
      expect(said.map(({ action }) => action)).toContain('agent_rollout.delete')
      expect(said.filter(({ action }) => action === 'agent_version.delete')).toContainEqual(
        expect.objectContaining({ resourceName: 'v12.0.0' }),
      )
    })
  })
})
