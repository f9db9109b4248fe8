import { Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import { enrollmentKeyHash, refusalOf } from '../credentials/enrollment-keys/rules.ts'
import { findByHash, lockTenant, spendEnrollmentKey } from '../credentials/enrollment-keys/store.ts'
import type { HandlersOf } from '../handler.ts'
import type * as contract from './contract.ts'
import {
  agentConfig,
  agentTokenHash,
  changesOf,
  checkDeviceCap,
  checkEnrollable,
  makeDevice,
  newAgentId,
  newAgentToken,
  statusAfterHeartbeat,
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
    checkDeviceCap(tenant.org.max_devices, await store.countDevices(db, { orgId: key.orgId }))
    const { partner_id: partnerId } = tenant.org
    checkDeviceCap(tenant.partner.max_devices, await store.countDevices(db, { partnerId }))

    const authToken = newAgentToken()
    const made = { id: newId(), agentId: newAgentId(), orgId: key.orgId, siteId: key.siteId, ip, now }
    const device = makeDevice(body, made)
    const tokenHash = agentTokenHash(authToken)
    await store.insertDevice(db, device, { tokenHash, enrollmentKeyId: key.id, enrollmentIp: ip })
    await store.saveInventory(db, device.id, { hardware: body.hardwareInfo, network: body.networkInfo })

    if (!(await spendEnrollmentKey(db, hash, device.id, now))) {
      throw new Problem('enrollment_key_exhausted', 'Enrollment key was just exhausted or expired', {
        refusal: {
          orgId: key.orgId,
          details: { hostname: body.hostname, reason: 'race_lost', enrollmentKeyId: key.id },
        },
      })
    }
    note({
      actor: { kind: 'agent', id: device.id, email: null },
      resourceId: device.id,
      resourceName: device.hostname,
      after: summaryOf(device),
    })
    const { agentId, id: deviceId, orgId, siteId } = device
    return { agentId, deviceId, authToken, orgId, siteId, config: agentConfig }
  },

  async heartbeat({ db, caller: { device }, body, now, ip }) {
    const status = statusAfterHeartbeat(device.status)
    const uptime = body.uptime === undefined ? device.uptime_seconds : Math.round(body.uptime)
    await store.recordHeartbeat(db, { id: device.id, status, uptime }, changesOf(body, device), { now, ip })
    if (body.metrics) await store.saveMetrics(db, device.id, body.metrics, now)
    return { commands: [], configUpdate: null, upgradeTo: null, rotateToken: false, manifestTrustKeys: [] }
  },

  async inventory({ db, caller, body }) {
    await store.saveInventory(db, caller.deviceId, body)
    return { success: true }
  },
})

const summaryOf = (device: ReturnType<typeof makeDevice>) => ({
  hostname: device.hostname,
  osType: device.osType,
  osVersion: device.osVersion,
  siteId: device.siteId,
})
