import type { RolloutDeviceState, RolloutStatus } from '../../../src/agents/rollouts/contract.ts'
import { insertRolloutDevices } from '../../../src/agents/rollouts/devices.ts'
import { activeStatuses, makeRollout } from '../../../src/agents/rollouts/rules.ts'
import { insertRollout, saveRollout } from '../../../src/agents/rollouts/store.ts'
import { newId } from '../../../src/core/new-id.ts'
import type { Instant } from '../../../src/core/time.ts'
import type { TestService } from '../../harness.ts'

/** Registers a version with an agent for each of these platforms. */
export async function addRelease(
  service: Pick<TestService, 'storage'>,
  version: string,
  {
    kinds = ['linux/x64'],
    promoted = false,
    minFrom = null,
    manifest = '{}',
  }: { kinds?: string[]; promoted?: boolean | Instant; minFrom?: string | null; manifest?: string } = {},
): Promise<void> {
  const now = '2026-02-01T00:00:00.000Z'
  const signed = { manifest, manifest_signature: '', signing_key_id: '' }
  const release = { version, tag: `v${version}`, prerelease: 0, notes: null, min_from: minFrom, ...signed }
  const promoted_at = promoted === false ? null : promoted === true ? now : promoted
  const builds = kinds.map((kind) => {
    const [platform = '', architecture = ''] = kind.split('/')
    const exe = platform === 'windows' ? '.exe' : ''
    const file = { name: `svc-agent-${platform}-${architecture}${exe}`, url: '', checksum: '', size: 1 }
    return {
      version,
      component: 'agent',
      platform,
      architecture,
      ...file,
      promoted_at,
      rollback_at: null,
    }
  })
  await service.storage.write(async (tx) => {
    await tx
      .insertInto('agent_releases')
      .values({ ...release, created_at: now, updated_at: now })
      .execute()
    await tx.insertInto('agent_builds').values(builds).execute()
  })
}

/** A rollout of an unknown version to no device; an active one replaces any other active one. */
export async function addRollout(
  service: Pick<TestService, 'storage'>,
  status: RolloutStatus = 'aborted',
): Promise<string> {
  const id = newId()
  const now = new Date().toISOString()
  const bounds = { gateMinutes: 15, soakMinutes: 10, maxFailurePercent: 5 }
  const wanted = { version: '9.9.9', waves: [{ percent: 100 }], ...bounds }
  const made = makeRollout(wanted, new Map(), { id, by: newId(), now })
  await service.storage.write(async (tx) => {
    const before = tx.updateTable('agent_rollouts').where('status', 'in', activeStatuses)
    await before.set({ status: 'aborted', is_current: 0 }).execute()
    await insertRollout(tx, made)
    const isCurrent = activeStatuses.includes(status)
    await saveRollout(tx, { ...made, status, isCurrent, waveBeganAt: now, endedAt: isCurrent ? null : now })
  })
  return id
}

/** Adds a device to the rollout, in this state. */
export async function addPlace(
  service: TestService,
  rolloutId: string,
  { id: org_id, deviceId: device_id }: { id: string; deviceId: string },
  state: RolloutDeviceState,
): Promise<void> {
  const place = { device_id, org_id, wave: 0, from_version: '0.1.0', is_held: 0 }
  await service.storage.write(async (tx) => {
    await insertRolloutDevices(tx, rolloutId, [place])
    const placed = tx.updateTable('agent_rollout_devices').where('device_id', '=', device_id)
    await placed
      .set({ state, settled_at: new Date().toISOString() })
      .where('rollout_id', '=', rolloutId)
      .execute()
  })
}
