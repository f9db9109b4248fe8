import { clonedMachineAlertRule } from '../../alerts/contract.ts'
import { raiseAlert } from '../../alerts/raise.ts'
import type { MacKey, Signer } from '../../audit/checkpoints/signer.ts'
import { deviceKeyFingerprint, devicePublicKey, isProofOf, newDeviceKey } from '../../core/device-key.ts'
import { Problem } from '../../core/errors.ts'
import { emitUpdated } from '../../devices/events.ts'
import type { Call, HandlersOf } from '../../handler.ts'
import { lockStatus } from '../store.ts'
import { agentTokenHash, checkIsCurrent, newAgentToken } from '../tokens/rules.ts'
import { lockTokenStanding } from '../tokens/standing.ts'
import { deleteRotation, saveActiveTokens } from '../tokens/store.ts'
import type { agentKeys as contract } from './contract.ts'
import { clonedMachineAlert, isClonedMachine, issueChallenge, issuedAt } from './rules.ts'
import * as store from './store.ts'

type Identity = MacKey & Pick<Signer, 'publicKeys' | 'trusted'>

/** Verifying with it takes as long as with the key of a device. */
const nobodysKey = devicePublicKey(newDeviceKey())

export const agentKeyHandlers = (identity: Identity): HandlersOf<typeof contract> => ({
  async register({ db, caller, body, now, note }) {
    const { deviceId: id, device } = caller
    const { org_id: orgId, hostname } = device
    note({ resourceId: id, resourceName: hostname })
    // The first key counts for good. A stolen token must not outlive its rotation by a key of the thief: under the lock it
    // has to be the one in use, and it replaces no key.
    checkIsCurrent((await lockTokenStanding(db, caller, now)).standingChange)
    const isNew = await store.insertKey(db, id, body.publicKey, now)
    if (!isNew) note({ unchanged: true })
    if ((await store.findKey(db, id)) !== body.publicKey) {
      const refusal = { orgId, details: { reason: 'other_key' } }
      throw new Problem('agent_key_conflict', undefined, { refusal })
    }
    // Nobody vouches for it but the token: administrators may want to look.
    const keyFingerprint = deviceKeyFingerprint(body.publicKey)
    if (isNew) await emitUpdated(db, { id, orgId, hostname }, { keyFingerprint }, now)
    return { serviceKey: identity.publicKeys[0]!.toString('base64') }
  },

  challenge: async ({ now }) => issueChallenge(identity, now),

  recover: (call) => recover(call, identity),
})

async function recover(
  { db, params, body, now, note }: Call<(typeof contract)['recover']>,
  identity: Identity,
) {
  const { id: agentId } = params
  const { challenge, serviceKey: service, signature } = body
  // Says nothing about the device, which is not read yet.
  const issued = issuedAt(identity, challenge, now)
  if (issued === undefined) throw new Problem('agent_challenge_invalid')
  const isOurs = (await identity.trusted()).some((key) => key.toString('base64') === service)
  if (!isOurs) throw new Problem('invalid_agent_credentials')

  const device = await store.findProvable(db, agentId)
  const isProved = isProofOf({ agentId, service, challenge }, signature, device?.public_key ?? nobodysKey)
  if (!device?.public_key || !isProved || device.is_gone) {
    // An unknown device is audited as well: whether an entry was written can be measured.
    throw new Problem('invalid_agent_credentials', undefined, {
      refusal: { orgId: device?.org_id ?? null, details: { reason: device ? 'not_proved' : 'unknown' } },
    })
  }
  note({
    orgId: device.org_id,
    resourceId: device.id,
    resourceName: device.hostname,
    actor: { kind: 'agent', id: device.id, email: null },
  })
  const status = await lockStatus(db, device.id)
  const refusal = { orgId: device.org_id, details: { reason: status } }
  if (status === 'decommissioned') throw new Problem('device_decommissioned', undefined, { refusal })
  if (status === 'quarantined') throw new Problem('device_quarantined', undefined, { refusal })
  const last = await store.findLastRecovery(db, device.id)
  if (!(await store.spendChallenge(db, device.id, issued))) {
    const details = { reason: 'challenge_spent' }
    throw new Problem('agent_challenge_invalid', undefined, { refusal: { orgId: device.org_id, details } })
  }
  const tokens = { agent: newAgentToken(), watchdog: newAgentToken() }
  await saveActiveTokens(db, device.id, {
    token_hash: agentTokenHash(tokens.agent),
    watchdog_token_hash: agentTokenHash(tokens.watchdog),
    token_issued_at: now,
  })
  await deleteRotation(db, device.id)
  if (
    last &&
    isClonedMachine(last, now) &&
    !(await store.hasClonedMachineAlert(db, device.id, clonedMachineAlertRule, now))
  )
    await raiseAlert(db, clonedMachineAlert(device), now)
  return { authToken: tokens.agent, watchdogAuthToken: tokens.watchdog }
}
