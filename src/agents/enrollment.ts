import { raiseAlert } from '../alerts/raise.ts'
import { Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import { enrollmentKeyHash, enrollmentRefusal } from '../credentials/enrollment-keys/rules.ts'
import { consumeEnrollmentKey, findByHash, lockDeviceCaps } from '../credentials/enrollment-keys/store.ts'
import type { Device } from '../devices/contract.ts'
import { checkDeviceCaps } from '../devices/store.ts'
import { emit } from '../events/outbox.ts'
import type { Call, HandlersOf } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import type { agents } from './contract.ts'
import { saveInventory } from './inventory.ts'
import { deleteKey, insertKey } from './keys/store.ts'
import {
  agentConfig,
  checkEnrollable,
  checkEnrollmentSecret,
  makeDevice,
  newAgentId,
  reenrollDevice,
  replacementAlert,
} from './rules.ts'
import * as store from './store.ts'
import { agentTokenHash, newAgentToken } from './tokens/rules.ts'
import { deleteRotation } from './tokens/store.ts'
import type { TrustKey } from './versions/manifest.ts'

export type EnrollSettings = {
  /** ENROLLMENT_KEY_PEPPER */
  pepper: string
  /** The pepper of keys created before, or by processes that already have the next one. */
  otherPepper: string | undefined
  /** AGENT_ENROLLMENT_SECRET: a secret that machines need in addition to a key; undefined when not set. */
  enrollmentSecret: string | undefined
  trustKeys: readonly TrustKey[]
  /** Key of the service that signs the audit log, in base64. */
  serviceKey: string
}

type Enroll = typeof agents.enroll

export const enrollHandler =
  (settings: EnrollSettings): HandlersOf<typeof agents>['enroll'] =>
  async (call) => {
    try {
      return await enroll(call, settings)
    } catch (error) {
      // A refusal is audited in as much detail as a success.
      if (error instanceof Problem) {
        call.note({ details: { hostname: call.body.hostname, reason: error.code } })
      }
      throw error
    }
  }

async function enroll({ db, body, now, ip, note, quota }: Call<Enroll>, settings: EnrollSettings) {
  const { pepper, otherPepper } = settings
  const current = enrollmentKeyHash(pepper, body.enrollmentKey)
  const other = otherPepper && enrollmentKeyHash(otherPepper, body.enrollmentKey)
  const found = await findByHash(db, current)
  const key = found ?? (other ? await findByHash(db, other) : undefined)
  const hash = found || !other ? current : other
  if (key) note({ orgId: key.orgId, details: { enrollmentKeyId: key.id, enrollmentKeyName: key.name } })
  // Before any reply about the key: a caller without the secret must learn nothing about keys.
  checkEnrollmentSecret(body.enrollmentSecret, settings.enrollmentSecret, key?.orgId ?? null)
  // Before the key's state: keys expire with their tenant, and the tenant's state is the more useful answer.
  const tenant = key && (await lockDeviceCaps(db, key.orgId))
  if (tenant) checkEnrollable(tenant)
  const refusal = enrollmentRefusal(key, now)
  if (!key || !tenant || refusal) {
    const details = key && { enrollmentKeyId: key.id }
    throw new Problem(refusal ?? 'enrollment_key_not_found', undefined, {
      refusal: { orgId: key?.orgId ?? null, ...(details && { details }) },
    })
  }
  const { orgId, siteId } = key
  const place = { orgId, siteId, hostname: body.hostname }
  const proof = body.reenrollmentToken
  const known =
    proof === undefined ? undefined : await store.findEnrolled(db, place, agentTokenHash(proof), now)
  if (known?.status === 'quarantined') throw new Problem('device_quarantined')
  // Decommissioning ends a record for its agent: the machine gets a new one, which counts towards the caps.
  const again = known?.status === 'decommissioned' ? undefined : known
  if (!again) {
    await quota({ orgId })
    await checkDeviceCaps(db, tenant)
  }

  const namesake = again ? undefined : await store.findNamesake(db, place)
  const ids = { id: newId(), agentId: newAgentId(), possibleReplacementOf: namesake ?? null }
  const made = makeDevice(body, { ...ids, orgId, siteId, ip, now })
  const device = again ? reenrollDevice(again, made) : made
  const tokens = { agent: newAgentToken(), watchdog: newAgentToken() }
  const credentials = {
    token_hash: agentTokenHash(tokens.agent),
    watchdog_token_hash: agentTokenHash(tokens.watchdog),
    token_issued_at: null,
    enrollment_key_id: key.id,
    enrollment_ip: ip,
  }
  await (again ? store.replaceDevice : store.insertDevice)(db, device, credentials)
  if (again) await deleteRotation(db, device.id)
  // The machine showed by its token that it is this device: a key that it had before may be lost.
  if (again) await deleteKey(db, device.id)
  if (body.publicKey !== undefined) await insertKey(db, device.id, body.publicKey, now)
  await saveInventory(db, device.id, { hardware: body.hardwareInfo, network: body.networkInfo })

  if (!(await consumeEnrollmentKey(db, hash, device.id, now))) {
    throw new Problem('enrollment_key_exhausted', 'Enrollment key was just exhausted or expired', {
      refusal: { orgId: key.orgId, details: { reason: 'race_lost', enrollmentKeyId: key.id } },
    })
  }
  await emitEnrolled(db, device, key.id, { reenrolled: again !== undefined, now })
  // It may be the same machine, which lost its token, or another one with its name: users decide.
  if (namesake !== undefined) await raiseAlert(db, replacementAlert(device), now)
  note({
    actor: { kind: 'agent', id: device.id, email: null },
    resourceId: device.id,
    resourceName: device.hostname,
    after: summaryOf(device),
    // A machine that is known creates no device.
    ...(again && { action: 'agent.enroll', details: { reenrolled: true } }),
    ...(namesake !== undefined && { details: { possibleReplacementOf: namesake } }),
  })
  return {
    agentId: device.agentId,
    deviceId: device.id,
    authToken: tokens.agent,
    watchdogAuthToken: tokens.watchdog,
    orgId,
    siteId,
    config: agentConfig,
    manifestTrustKeys: [...settings.trustKeys],
    serviceKey: settings.serviceKey,
  }
}

async function emitEnrolled(
  db: Db,
  { id: deviceId, orgId, hostname, siteId, osType, agentVersion, possibleReplacementOf }: Device,
  enrollmentKeyId: string,
  { reenrolled, now }: { reenrolled: boolean; now: Instant },
): Promise<void> {
  const machine = { deviceId, hostname, siteId, osType, agentVersion }
  const data = { ...machine, enrollmentKeyId, reenrolled, possibleReplacementOf }
  await emit(db, { orgId, type: 'device.enrolled', data }, now)
}

const summaryOf = (device: Device) => ({
  hostname: device.hostname,
  osType: device.osType,
  osVersion: device.osVersion,
  siteId: device.siteId,
})
