import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { deviceKeyFingerprint, devicePublicKey, newDeviceKey, signProof } from '../../src/core/device-key.ts'
import { onEveryDatabase } from '../databases.ts'
import { begin, machine } from '../devices/device-fixture.ts'
import { serviceOn, type TestService, testClock } from '../harness.ts'
import { addWebhook } from '../world.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })
const beat = { status: 'ok', agentVersion: '0.1.0' } as const

/** Changes of devices that webhooks get. */
const sent = async ({ storage }: TestService) => {
  const deliveries = storage.read.selectFrom('webhook_deliveries').select(['event', 'payload'])
  const rows = await deliveries.where('event', '=', 'device.updated').execute()
  return rows.map(({ event, payload }) => ({ event, payload: JSON.parse(payload) }))
}

describe('the key of a machine', () => {
  onEveryDatabase((kind, open) => {
    async function start() {
      const clock = testClock()
      const stage = await begin(open, { clock })
      const { service, client, bakery } = stage
      const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'tills', maxUsage: 50 } })
      const anybody = service.client()
      const enroll = async (hostname: string, privateKey: string | undefined = newDeviceKey()) => {
        const publicKey = privateKey && devicePublicKey(privateKey)
        const body = { enrollmentKey: key, hostname, ...machine, ...(publicKey && { publicKey }) }
        return { ...(await anybody.call(api.agents.enroll, { body })), privateKey: privateKey! }
      }
      const challenged = async () => (await anybody.call(api.agentKeys.challenge)).challenge
      type Machine = Awaited<ReturnType<typeof enroll>>
      const proofOf = (
        { agentId, serviceKey, privateKey }: Pick<Machine, 'agentId' | 'serviceKey' | 'privateKey'>,
        challenge: string,
      ) => {
        const signature = signProof({ agentId, service: serviceKey, challenge }, privateKey)
        return { params: { id: agentId }, body: { challenge, serviceKey, signature } }
      }
      const recover = (input: ReturnType<typeof proofOf>) => anybody.call(api.agentKeys.recover, input)
      const heartbeat = ({ agentId }: Machine, token: string) =>
        service.client(token).call(api.agents.heartbeat, { params: { id: agentId }, body: beat })
      const entries = async (action: string, orgId?: string) => {
        const admin = service.client(stage.tokens.system)
        const query = { action, ...(orgId !== undefined && { orgId }) }
        return (await admin.call(api.auditLogs.list, { query })).data
      }
      return { ...stage, clock, bakery, enroll, challenged, proofOf, recover, heartbeat, entries }
    }

    it('gets it new tokens, which end those before, and its answer counts once', async () => {
      const { clock, enroll, challenged, proofOf, recover, heartbeat, entries, bakery } = await start()
      const till = await enroll('till-1')
      const older = proofOf(till, await challenged())
      clock.forward(1)
      const answer = proofOf(till, await challenged())
      const fresh = await recover(answer)
      await expect(heartbeat(till, till.authToken)).rejects.toEqual(failing(401, 'invalid_agent_credentials'))
      await heartbeat(till, fresh.authToken)
      for (const again of [answer, older]) {
        await expect(recover(again)).rejects.toEqual(failing(401, 'agent_challenge_invalid'))
      }
      await heartbeat(till, fresh.authToken)
      const told = await entries('agent.token.recover', bakery.id)
      expect(told.map(({ result, resource }) => [result, resource.id])).toEqual([
        ['failure', till.deviceId],
        ['failure', till.deviceId],
        ['success', till.deviceId],
      ])
      expect(JSON.stringify(told)).not.toContain(answer.body.signature)
      expect(JSON.stringify(told)).not.toContain(answer.body.challenge)
    })

    it('is refused with another key, for another service, with a forged challenge, and too late', async () => {
      const { clock, enroll, challenged, proofOf, recover, heartbeat } = await start()
      const [till, oven] = [await enroll('till-1'), await enroll('oven-1')]
      const invalid = failing(401, 'agent_challenge_invalid')
      const unknown = failing(401, 'invalid_agent_credentials')
      const challenge = await challenged()
      const of = { ...till }
      await expect(recover(proofOf({ ...of, privateKey: oven.privateKey }, challenge))).rejects.toEqual(
        unknown,
      )
      const elsewhere = devicePublicKey(newDeviceKey())
      await expect(recover(proofOf({ ...of, serviceKey: elsewhere }, challenge))).rejects.toEqual(unknown)
      const forged = challenge.replace(/^[^.]+/, (issued) => (Number.parseInt(issued, 36) + 1).toString(36))
      await expect(recover(proofOf(of, forged))).rejects.toEqual(invalid)
      clock.forward(121)
      await expect(recover(proofOf(of, challenge))).rejects.toEqual(invalid)
      await heartbeat(till, till.authToken)
    })

    it('tells nobody which machines exist', async () => {
      const { enroll, challenged, proofOf, recover, entries, bakery } = await start()
      const [till, mute] = [await enroll('till-1'), await enroll('mute-1', '')]
      const stranger = newDeviceKey()
      const answerFor = async (agentId: string) => {
        const challenge = await challenged()
        const input = proofOf({ agentId, serviceKey: till.serviceKey, privateKey: stranger }, challenge)
        const told = await recover(input).catch(({ status, code, message }) => ({ status, code, message }))
        return { told, form: challenge.replace(/[\w+/=-]/g, 'x').length }
      }
      const nobody = await answerFor('0'.repeat(64))
      expect(nobody.told).toMatchObject({ status: 401, code: 'invalid_agent_credentials' })
      expect(await answerFor(till.agentId)).toEqual(nobody)
      expect(await answerFor(mute.agentId)).toEqual(nobody)
      const reasons = async (orgId?: string) =>
        (await entries('agent.token.recover', orgId)).map(({ details }) => details.reason)
      expect(await reasons(bakery.id)).toEqual(['not_proved', 'not_proved'])
      expect((await reasons()).filter((one) => one === 'unknown')).toHaveLength(1)
    })

    it('is registered once over a valid token, and never replaced', async () => {
      const { service, enroll, challenged, proofOf, recover, heartbeat, entries, bakery } = await start()
      const till = await enroll('till-1', '')
      const privateKey = newDeviceKey()
      const register = (key: string) =>
        service.client(till.authToken).call(api.agentKeys.register, {
          params: { id: till.agentId },
          body: { publicKey: devicePublicKey(key) },
        })
      expect(await register(privateKey)).toEqual({ serviceKey: till.serviceKey })
      expect(await register(privateKey)).toEqual({ serviceKey: till.serviceKey })
      await expect(register(newDeviceKey())).rejects.toEqual(failing(409, 'agent_key_conflict'))
      const { authToken } = await recover(proofOf({ ...till, privateKey }, await challenged()))
      await heartbeat(till, authToken)
      const told = await entries('agent.key.register', bakery.id)
      expect(told.map(({ result, details }) => [result, details.reason])).toContainEqual([
        'denied',
        'other_key',
      ])
    })

    it('is told to administrators when a machine brings its first one later', async () => {
      const { service, enroll, entries, bakery } = await start()
      await addWebhook(service, bakery.id, 'all', ['device.updated'])
      const till = await enroll('till-1', '')
      const publicKey = devicePublicKey(newDeviceKey())
      const register = () =>
        service
          .client(till.authToken)
          .call(api.agentKeys.register, { params: { id: till.agentId }, body: { publicKey } })
      await register()
      await register()
      const keyFingerprint = deviceKeyFingerprint(publicKey)
      expect(keyFingerprint).toMatch(/^SHA256:[\w+/]{43}$/)
      const told = await entries('agent.key.register', bakery.id)
      expect(told).toMatchObject([
        { result: 'success', resource: { id: till.deviceId }, details: { after: { publicKey } } },
      ])
      await expect
        .poll(() => sent(service))
        .toMatchObject([
          {
            event: 'device.updated',
            payload: { keyFingerprint, deviceId: till.deviceId, hostname: 'till-1' },
          },
        ])
      expect((await sent(service))[0]!.payload.fields).toEqual(['keyFingerprint'])
    })

    it('is taken from the holder of the current token alone', async () => {
      const { service, enroll } = await start()
      const till = await enroll('till-1', '')
      const params = { id: till.agentId }
      const body = { publicKey: devicePublicKey(newDeviceKey()) }
      const register = (token: string) => service.client(token).call(api.agentKeys.register, { params, body })
      const keys = () => service.storage.read.selectFrom('agent_keys').select('device_id').execute()
      const staged = await service.client(till.authToken).call(api.agentTokens.rotate, { params })
      await expect(register(staged.authToken)).rejects.toEqual(failing(409, 'pending_rotation_unconfirmed'))
      await service.client(staged.authToken).call(api.agentTokens.confirm, { params })
      // Accepted on every other route for five minutes more.
      await expect(register(till.authToken)).rejects.toEqual(failing(409, 'rotation_stale_current'))
      await expect(register(staged.watchdogAuthToken)).rejects.toEqual(failing(403, 'agent_role_required'))
      expect(await keys()).toEqual([])
      await register(staged.authToken)
      expect(await keys()).toEqual([{ device_id: till.deviceId }])
    })

    it('is not taken from a token that is replaced at the same moment', async () => {
      const { service, enroll } = await start()
      const till = await enroll('till-1', '')
      const outcome = await service.storage.write(async (tx) => {
        await tx
          .updateTable('devices')
          .set({ token_hash: 'of another enrollment' })
          .where('id', '=', till.deviceId)
          .execute()
        const registering = service.client(till.authToken).call(api.agentKeys.register, {
          params: { id: till.agentId },
          body: { publicKey: devicePublicKey(newDeviceKey()) },
        })
        // It is authenticated meanwhile, with what was committed before, and waits for this transaction.
        await sleep(300)
        return { registering: registering.catch(({ code }) => code) }
      })
      expect(await outcome.registering).toBe('rotation_unresolvable')
      expect(await service.storage.read.selectFrom('agent_keys').select('device_id').execute()).toEqual([])
    })

    it('is the first of two that are registered at the same moment', async () => {
      const { service, enroll, entries, bakery } = await start()
      await addWebhook(service, bakery.id, 'all', ['device.updated'])
      const till = await enroll('till-1', '')
      const publicKeys = [1, 2, 3, 4].map(() => devicePublicKey(newDeviceKey()))
      const outcomes = await Promise.allSettled(
        publicKeys.map((publicKey) =>
          service
            .client(till.authToken)
            .call(api.agentKeys.register, { params: { id: till.agentId }, body: { publicKey } }),
        ),
      )
      const won = outcomes.flatMap(({ status }, n) => (status === 'fulfilled' ? publicKeys[n]! : []))
      expect(won).toHaveLength(1)
      for (const one of outcomes)
        if (one.status === 'rejected') expect(one.reason).toEqual(failing(409, 'agent_key_conflict'))
      const rows = await service.storage.read.selectFrom('agent_keys').select('public_key').execute()
      expect(rows).toEqual([{ public_key: won[0] }])
      const told = await entries('agent.key.register', bakery.id)
      expect(told.map(({ result }) => result).sort()).toEqual(['denied', 'denied', 'denied', 'success'])
      await expect.poll(() => sent(service)).toMatchObject([{ payload: { deviceId: till.deviceId } }])
    })

    it('that two machines use is told once an hour, by whichever replica, and not while the alert is open', async () => {
      const { service, clock, enroll, challenged, proofOf, recover, heartbeat } = await start()
      const till = await enroll('till-1')
      const other = kind === 'postgres' ? await serviceOn(service, { clock }) : service
      const alerts = () =>
        service.storage.read
          .selectFrom('alerts')
          .select(['id', 'rule_id', 'severity', 'status'])
          .where('device_id', '=', till.deviceId)
          .orderBy('triggered_at', 'desc')
          .execute()
      const recoverAt = async ({ client }: typeof service) =>
        client().call(api.agentKeys.recover, proofOf(till, await challenged()))
      /** One machine gets a token and uses it, then its copy. */
      const quarrel = async () => {
        for (const at of [service, other]) {
          clock.forward(10)
          await heartbeat(till, (await recoverAt(at)).authToken)
        }
      }
      clock.forward(10)
      // Replies that were lost: nobody has used the tokens.
      for (let n = 0; n < 3; n++) {
        clock.forward(1)
        await recover(proofOf(till, await challenged()))
      }
      expect(await alerts()).toEqual([])
      await quarrel()
      const [alert, ...more] = await alerts()
      expect(more).toEqual([])
      expect(alert).toMatchObject({ rule_id: 'copied-machine', severity: 'high', status: 'active' })
      clock.forward(7200)
      await quarrel()
      await quarrel()
      expect(await alerts()).toHaveLength(1)
      const resolve = (id: string) =>
        service.storage.write((tx) =>
          tx.updateTable('alerts').set({ status: 'resolved' }).where('id', '=', id).execute(),
        )
      await resolve(alert!.id)
      await quarrel()
      await quarrel()
      const two = await alerts()
      expect(two).toHaveLength(2)
      await resolve(two[0]!.id)
      await quarrel()
      expect(await alerts()).toHaveLength(2)
      clock.forward(3600)
      await quarrel()
      expect(await alerts()).toHaveLength(3)
    })

    it('that two machines use is told also where the clock that issues challenges is ahead', async () => {
      const { service, clock, enroll, challenged, proofOf, recover, heartbeat } = await start()
      const till = await enroll('till-1')
      clock.forward(10)
      for (let n = 0; n < 2; n++) {
        // Of a process whose clock is two minutes ahead.
        clock.forward(120)
        const challenge = await challenged()
        clock.forward(-120)
        const { authToken } = await recover(proofOf(till, challenge))
        clock.forward(60)
        await heartbeat(till, authToken)
      }
      const alerts = service.storage.read.selectFrom('alerts').select('rule_id')
      const told = await alerts.where('device_id', '=', till.deviceId).execute()
      expect(told).toEqual([{ rule_id: 'copied-machine' }])
    })

    it('that two machines use is told again after an hour where the alert is dismissed or suppressed', async () => {
      const { service, clock, enroll, challenged, proofOf, recover, heartbeat } = await start()
      const till = await enroll('till-1')
      const alerts = async () => {
        const query = service.storage.read.selectFrom('alerts').select('id')
        return (await query.where('device_id', '=', till.deviceId).execute()).length
      }
      let [expected, isMuted] = [0, false]
      for (const status of ['dismissed', 'suppressed', 'resolved', 'active', 'acknowledged', 'dismissed']) {
        for (let n = 0; n < 2; n++) {
          clock.forward(10)
          await heartbeat(till, (await recover(proofOf(till, await challenged()))).authToken)
        }
        if (!isMuted) expected += 1
        isMuted = status === 'active' || status === 'acknowledged'
        expect([status, await alerts()]).toEqual([status, expected])
        await service.storage.write((tx) =>
          tx.updateTable('alerts').set({ status }).where('device_id', '=', till.deviceId).execute(),
        )
        clock.forward(3601)
      }
    })

    it('opens nothing to a machine that is decommissioned or in quarantine', async () => {
      const { client, enroll, challenged, proofOf, recover, service } = await start()
      const till = await enroll('till-1')
      const [params, answer] = [{ id: till.deviceId }, async () => proofOf(till, await challenged())]
      const set = (status: string) =>
        service.storage.write((tx) =>
          tx.updateTable('devices').set({ status }).where('id', '=', till.deviceId).execute(),
        )
      await set('quarantined')
      await expect(recover(await answer())).rejects.toEqual(failing(403, 'device_quarantined'))
      await set('online')
      await client.call(api.devices.decommission, { params })
      await expect(recover(await answer())).rejects.toEqual(failing(403, 'device_decommissioned'))
    })
  })
})
