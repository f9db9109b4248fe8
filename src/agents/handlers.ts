import { record } from '../audit/outbox.ts'
import { draftOf, type Happening } from '../audit/rules.ts'
import { Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import { enrollmentKeyHash, refusalOf } from '../credentials/enrollment-keys/rules.ts'
import { findByHash, lockTenant, spendEnrollmentKey } from '../credentials/enrollment-keys/store.ts'
import { tellMoved, tellUpdated } from '../devices/events.ts'
import { deviceRows } from '../devices/rows.ts'
import { checkDeviceCap } from '../devices/rules.ts'
import { countDevices } from '../devices/store.ts'
import { emit } from '../events/outbox.ts'
import type { HandlersOf } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import type { AgentDeviceRow, DeviceRow } from '../storage/tables.ts'
import type * as contract from './contract.ts'
import {
  agentConfig,
  agentTokenHash,
  changesOf,
  checkEnrollable,
  makeDevice,
  newAgentId,
  newAgentToken,
  reenrolled,
  silentStates,
  toldWith,
} from './rules.ts'
import * as store from './store.ts'

export const agentHandlers = (settings: { pepper: string }): HandlersOf<typeof contract.agents> => ({
  async enroll({ db, body, now, ip, note }) {
    const hash = enrollmentKeyHash(settings.pepper, body.enrollmentKey)
    const key = await findByHash(db, hash)
    if (key) note({ orgId: key.orgId, details: { enrollmentKeyId: key.id, enrollmentKeyName: key.name } })
    // Before the key: keys end with their tenant, and that is what whoever has one should hear.
    const tenant = key && (await lockTenant(db, key.orgId))
    if (tenant) checkEnrollable(tenant)
    const refusal = refusalOf(key, now)
    if (!key || !tenant || refusal) {
      const details = { hostname: body.hostname, reason: refusal, ...(key && { enrollmentKeyId: key.id }) }
      throw new Problem(refusal ?? 'enrollment_key_not_found', undefined, {
        refusal: { orgId: key?.orgId ?? null, details },
      })
    }
    const { orgId, siteId } = key
    const known =
      body.reenrollmentToken === undefined
        ? undefined
        : await store.findEnrolled(
            db,
            { orgId, siteId, hostname: body.hostname },
            agentTokenHash(body.reenrollmentToken),
          )
    if (known?.status === 'quarantined') throw new Problem('device_quarantined')
    // Decommissioning is the end of a record for its agent: the machine starts anew, and counts.
    const again = known?.status === 'decommissioned' ? undefined : known
    if (!again) {
      checkDeviceCap(tenant.org.max_devices, await countDevices(db, { orgId }))
      const { partner_id: partnerId } = tenant.org
      checkDeviceCap(tenant.partner.max_devices, await countDevices(db, { partnerId }))
    }

    const authToken = newAgentToken()
    const made = makeDevice(body, { id: newId(), agentId: newAgentId(), orgId, siteId, ip, now })
    const device = again ? reenrolled(again, made) : made
    const credentials = {
      token_hash: agentTokenHash(authToken),
      enrollment_key_id: key.id,
      enrollment_ip: ip,
    }
    await (again ? store.replaceDevice : store.insertDevice)(db, device, credentials)
    await store.saveInventory(db, device.id, { hardware: body.hardwareInfo, network: body.networkInfo })

    if (!(await spendEnrollmentKey(db, hash, device.id, now))) {
      throw new Problem('enrollment_key_exhausted', 'Enrollment key was just exhausted or expired', {
        refusal: {
          orgId: key.orgId,
          details: { hostname: body.hostname, reason: 'race_lost', enrollmentKeyId: key.id },
        },
      })
    }
    await tellEnrolled(db, device, key.id, { reenrolled: again !== undefined, now })
    note({
      actor: { kind: 'agent', id: device.id, email: null },
      resourceId: device.id,
      resourceName: device.hostname,
      after: summaryOf(device),
      ...(again && { details: { reenrolled: true } }),
    })
    const { agentId, id: deviceId } = device
    return { agentId, deviceId, authToken, orgId, siteId, config: agentConfig }
  },

  async heartbeat({ db, caller: { device }, body, now, ip, userAgent }) {
    if (device.last_seen_ip !== ip) await tellNewAddress(db, device, { ip, userAgent, now })
    const uptime = body.uptime === undefined ? device.uptime_seconds : Math.round(body.uptime)
    const said = { changed: changesOf(body, device), metrics: body.metrics }
    await store.recordHeartbeat(db, { id: device.id, uptime }, said, { now, ip })
    await tellHeartbeat(db, device, said.changed, now)
    return { commands: [], configUpdate: null, upgradeTo: null, rotateToken: false, manifestTrustKeys: [] }
  },

  async inventory({ db, caller, body }) {
    await store.saveInventory(db, caller.deviceId, body)
    return { success: true }
  },
})

type Heard = { ip: string; userAgent: string | null; now: Instant }

/** A machine that reports from elsewhere may be another one with its token. */
async function tellNewAddress(db: Db, device: AgentDeviceRow, { ip, userAgent, now }: Heard): Promise<void> {
  const known = await store.lockAddresses(db, device.id)
  const previousIp = known?.last_seen_ip ?? null
  if (!known || previousIp === null || previousIp === ip) return
  const told = toldWith(known.told_addresses, ip, now)
  if (told === undefined) return
  await store.keepTold(db, device.id, told)
  const changed: Happening = {
    orgId: device.org_id,
    actorType: 'agent',
    actorId: device.id,
    actorEmail: null,
    action: 'agent.source.ip.changed',
    resourceType: 'device',
    resourceId: device.id,
    resourceName: device.hostname,
    details: { previousIp, newIp: ip },
    ipAddress: ip,
    userAgent,
    result: 'success',
  }
  await record(db, draftOf(changed, now))
}

type Made = ReturnType<typeof makeDevice>

async function tellEnrolled(
  db: Db,
  { id: deviceId, orgId, hostname, siteId, osType, agentVersion }: Made,
  enrollmentKeyId: string,
  { reenrolled, now }: { reenrolled: boolean; now: Instant },
): Promise<void> {
  const data = { deviceId, hostname, siteId, osType, agentVersion, enrollmentKeyId, reenrolled }
  await emit(db, { orgId, type: 'device.enrolled', data }, now)
}

/** That it is back, and what it says of itself that is another than before; who is signed in changes too often. */
async function tellHeartbeat(
  db: Db,
  device: AgentDeviceRow,
  changed: Partial<DeviceRow>,
  now: Instant,
): Promise<void> {
  const { id, org_id, hostname = device.hostname, agent_version } = { ...device, ...changed }
  if ((silentStates as readonly string[]).includes(device.status)) {
    const back = { display_name: null, last_seen_at: now, status: 'online' }
    await tellMoved(db, [{ id, org_id, hostname, agent_version, ...back }], now)
  }
  const { hostname_key: _, last_user: __, ...columns } = changed
  if (Object.keys(columns).length > 0) {
    await tellUpdated(db, { id, orgId: org_id, hostname }, deviceRows.read(columns), now)
  }
}

const summaryOf = (device: ReturnType<typeof makeDevice>) => ({
  hostname: device.hostname,
  osType: device.osType,
  osVersion: device.osVersion,
  siteId: device.siteId,
})
