import { describe, expect, it } from 'vitest'
import { parseTrustKey } from '../../src/agents/versions/manifest.ts'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { begin, machine } from '../devices/device-fixture.ts'
import { serviceOn } from '../harness.ts'
import { releaseKey } from './signed-release.ts'

inTurn((open) => {
  const start = async (env?: Record<string, string>) => {
    const stage = await begin(open)
    // The devices of the world enrolled before the setting was made.
    if (env) await stage.service.close()
    const service = env ? await serviceOn(stage.service, { env }) : stage.service
    const client = service.client(stage.tokens.bakery)
    const made = await client.call(api.enrollmentKeys.create, { body: { name: 'till', maxUsage: 100 } })
    const enrolling = (more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
      service.client(undefined, headers).call(api.agents.enroll, {
        body: { enrollmentKey: made.key, hostname: 'till-1', ...machine, ...more } as never,
      })
    const uses = async () =>
      (await client.call(api.enrollmentKeys.show, { params: { id: made.id } })).usageCount
    const audited = async (limit = 1) =>
      (await client.call(api.auditLogs.list, { query: { action: 'agent.enroll', limit } })).data
    return { ...stage, service, client, enrolling, uses, audited }
  }

  describe('enrollment', () => {
    it('returns a token for the agent and another one for its watchdog', async () => {
      const { enrolling } = await start()
      const token = expect.stringMatching(/^svc_[0-9a-f]{64}$/)
      const enrolled = await enrolling()
      expect(enrolled).toMatchObject({
        authToken: token,
        watchdogAuthToken: token,
        manifestTrustKeys: [parseTrustKey(releaseKey.publicKey)],
      })
      expect(enrolled.watchdogAuthToken).not.toBe(enrolled.authToken)
    })

    it('requires the secret of the service besides the key, in the body or a header', async () => {
      const env = { AGENT_ENROLLMENT_SECRET: 'open sesame' }
      const { enrolling, uses, audited, bakery } = await start(env)
      const denied = (code: string) => ({
        orgId: bakery.id,
        result: 'denied',
        details: { code, reason: code, hostname: 'till-1' },
      })
      await expect(enrolling()).rejects.toMatchObject({ status: 403, code: 'enrollment_secret_required' })
      expect(await audited()).toMatchObject([denied('enrollment_secret_required')])
      for (const enrollmentSecret of ['open sesam', 'open sesame ', 'Open sesame']) {
        await expect(enrolling({ enrollmentSecret })).rejects.toMatchObject({
          status: 403,
          code: 'invalid_enrollment_secret',
        })
      }
      expect(await audited()).toMatchObject([denied('invalid_enrollment_secret')])
      expect(await uses()).toBe(0)
      await enrolling({ enrollmentSecret: 'open sesame' })
      await enrolling({ hostname: 'till-2' }, { 'x-agent-enrollment-secret': 'open sesame' })
      expect(await uses()).toBe(2)
      expect(JSON.stringify(await audited(10))).not.toContain('sesam')
    })

    it('reveals nothing about keys without the secret', async () => {
      const { enrolling } = await start({ AGENT_ENROLLMENT_SECRET: 'open sesame' })
      const guess = { enrollmentKey: 'f'.repeat(64) }
      await expect(enrolling(guess)).rejects.toMatchObject({ code: 'enrollment_secret_required' })
      await expect(enrolling({ ...guess, enrollmentSecret: 'x' })).rejects.toMatchObject({
        code: 'invalid_enrollment_secret',
      })
      const known = enrolling({ ...guess, enrollmentSecret: 'open sesame' })
      await expect(known).rejects.toMatchObject({ code: 'enrollment_key_not_found' })
    })

    it('ignores a secret where the service has none', async () => {
      const { enrolling, show } = await start()
      const { deviceId } = await enrolling({ enrollmentSecret: 'whatever' })
      expect(await show(deviceId)).toMatchObject({ id: deviceId, hostname: 'till-1' })
    })

    it('with the hostname of a device marks a possible replacement, and raises an alert', async () => {
      const { enrolling, show, client, audited } = await start()
      const first = await enrolling()
      expect((await show(first.deviceId)).possibleReplacementOf).toBeNull()
      const second = await enrolling()
      expect((await show(second.deviceId)).possibleReplacementOf).toBe(first.deviceId)
      expect(await audited()).toMatchObject([
        { result: 'success', details: { possibleReplacementOf: first.deviceId } },
      ])
      const { data } = await client.call(api.alerts.list, { query: { deviceId: second.deviceId } })
      expect(data).toMatchObject([
        {
          severity: 'medium',
          status: 'active',
          ruleId: 'possible-replacement',
          title: 'till-1 enrolled beside a device of the same name',
          context: { possibleReplacementOf: first.deviceId },
        },
      ])
      const events = await client.call(api.alerts.list, { query: { deviceId: first.deviceId } })
      expect(events.data).toEqual([])
    })

    it('marks no possible replacement with its token, elsewhere, or after a decommission', async () => {
      const { enrolling, show, client, bakery, service, orgs } = await start()
      const first = await enrolling()
      const again = await enrolling({ reenrollmentToken: first.authToken })
      expect((await show(again.deviceId)).possibleReplacementOf).toBeNull()
      const atSite = await client.call(api.enrollmentKeys.create, {
        body: { name: 'site', siteId: bakery.siteId, maxUsage: 10 },
      })
      const elsewhere = await enrolling({ enrollmentKey: atSite.key })
      expect((await show(elsewhere.deviceId)).possibleReplacementOf).toBeNull()
      const foreign = { hostname: `${orgs.garage.name}-pc` }
      expect((await show((await enrolling(foreign)).deviceId)).possibleReplacementOf).toBeNull()
      await client.call(api.devices.decommission, { params: { id: again.deviceId } })
      const fresh = await enrolling()
      expect((await show(fresh.deviceId)).possibleReplacementOf).toBeNull()
      const alerts = service.storage.read.selectFrom('alerts').select('id')
      expect(await alerts.where('rule_id', '=', 'possible-replacement').execute()).toEqual([])
    })

    it('again keeps the auto-update decision, and clears what the previous agent reported', async () => {
      const { enrolling, show, service } = await start()
      const first = await enrolling()
      const set = { auto_update: 0, auto_update_acknowledged: 0, watchdog_status: 'failover' }
      await service.storage.write((tx) =>
        tx.updateTable('devices').set(set).where('id', '=', first.deviceId).execute(),
      )
      await enrolling({ reenrollmentToken: first.authToken })
      expect(await show(first.deviceId)).toMatchObject({
        autoUpdate: { desired: false, acknowledged: null },
        watchdogStatus: null,
      })
    })

    it('records the reason of each refusal in the audit log', async () => {
      const { enrolling, audited, service, bakery } = await start()
      await service.storage.write((tx) =>
        tx.updateTable('organizations').set({ max_devices: 1 }).where('id', '=', bakery.id).execute(),
      )
      await expect(enrolling()).rejects.toMatchObject({ code: 'device_limit_reached' })
      expect(await audited()).toMatchObject([
        { details: { reason: 'device_limit_reached', hostname: 'till-1' } },
      ])
      await service.storage.write((tx) => tx.updateTable('enrollment_keys').set({ max_usage: 0 }).execute())
      await expect(enrolling()).rejects.toMatchObject({ code: 'enrollment_key_exhausted' })
      expect(await audited()).toMatchObject([
        { result: 'failure', details: { reason: 'enrollment_key_exhausted', hostname: 'till-1' } },
      ])
    })
  })
})
