import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { devicePublicKey, newDeviceKey, signProof } from '../../../src/core/device-key.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import { openMigrated } from '../../databases.ts'
import { machine } from '../../devices/device-fixture.ts'
import { serviceOn, type TestService, testClock } from '../../harness.ts'
import { start } from '../../trust/trust-fixture.ts'
import { systemToken } from '../../world.ts'
import { addPerson, codeAt, enrolFactor, password, signIn } from '../people.ts'
import { backupOf, emptyPlace, kinds, restored } from './filled.ts'

const refusal = (code: string) => expect.objectContaining({ status: 401, code })

/** The services stand at one time, before that of the restore: what they refuse is not merely expired. */
async function stage(kind: (typeof kinds)[number]) {
  const clock = testClock(systemClock())
  const first = await start(() => openMigrated(kind), {}, clock)
  const restart = async (file: string) => {
    const place = await emptyPlace(kind)
    await restored(place, file)
    return serviceOn(place, { clock, outside: first.outside })
  }
  return { ...first, restart }
}

describe.each(kinds)('a database restored to %s refuses what was used since its backup', (kind) => {
  it('a code of an authenticator', async () => {
    const { service, clock, bakery, restart } = await stage(kind)
    const email = await addPerson(service, 'grace', { orgId: bakery.id }, 'Org Viewer')
    const { accessToken } = await signIn(service, { email, password })
    // With the code before the present one, which is left for the lost time.
    const { secret } = await enrolFactor(service.client(accessToken), () => addSeconds(clock(), -30))
    const { file } = await backupOf(service)
    const code = codeAt(secret, clock)
    const prove = async (at: TestService) => {
      const { tempToken } = await at.client().call(api.auth.login, { body: { email, password } })
      return at.client().call(api.auth.verifyMfa, { body: { tempToken: tempToken!, code } })
    }
    expect((await prove(service)).tokens).not.toBeNull()
    await expect(prove(await restart(file))).rejects.toEqual(refusal('invalid_mfa_code'))
  })

  it('an answer of a machine to a challenge', async () => {
    const { service, client, restart } = await stage(kind)
    const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'tills', maxUsage: 5 } })
    const privateKey = newDeviceKey()
    const body = {
      enrollmentKey: key,
      hostname: 'till-1',
      ...machine,
      publicKey: devicePublicKey(privateKey),
    }
    const { agentId, serviceKey } = await service.client().call(api.agents.enroll, { body })
    const { file } = await backupOf(service)
    const { challenge } = await service.client().call(api.agentKeys.challenge)
    const signature = signProof({ agentId, service: serviceKey!, challenge }, privateKey)
    const recover = (at: TestService) =>
      at.client().call(api.agentKeys.recover, {
        params: { id: agentId },
        body: { challenge, serviceKey: serviceKey!, signature },
      })
    expect((await recover(service)).authToken).toMatch(/^svc_/)
    await expect(recover(await restart(file))).rejects.toEqual(refusal('agent_challenge_invalid'))
  })

  it('the token of a workload, under a policy that has changed as often since', async () => {
    const { service, create, change, exchange, tokenOf, restart } = await stage(kind)
    const { id } = await create({ permissions: ['devices:read'] })
    const { file } = await backupOf(service)
    await change(id, { maxTtlMinutes: 20 })
    const { accessToken } = await exchange(await tokenOf())
    const use = (at: TestService) => at.client(accessToken).call(api.devices.list)
    expect((await use(service)).data).toHaveLength(1)
    // Without a gap, the next change would give the policy the number that the token names.
    const later = await restart(file)
    const admin = later.client(await systemToken(later))
    await admin.call(api.trustPolicies.update, { params: { id }, body: { maxTtlMinutes: 10 } })
    await expect(use(later)).rejects.toEqual(refusal('invalid_token'))
  })
})
