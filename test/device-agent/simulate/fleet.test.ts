import { describe, expect, it, vi } from 'vitest'
import { api } from '../../../src/api.ts'
import { addRelease } from '../../agents/rollouts/records.ts'
import { inTurn } from '../../databases.ts'
import { begin } from '../../devices/device-fixture.ts'
import { testClock } from '../../harness.ts'
import { type FleetOptions, startFleet } from './fleets.ts'

const soon = (check: () => Promise<unknown>) => vi.waitFor(check, { timeout: 15_000, interval: 50 })

inTurn((open) => {
  const startStage = async (options: Parameters<typeof begin>[1] = {}) => {
    const stage = await begin(open, options)
    const body = { name: 'simulation', maxUsage: 500 }
    const { key } = await stage.client.call(api.enrollmentKeys.create, { body })
    const fleet = (options?: FleetOptions) => startFleet(stage.service.url, key, options)
    const devices = async () => {
      const { data } = await stage.client.call(api.devices.list, { query: { limit: 100 } })
      return data.filter(({ hostname }) => hostname.startsWith('sim-'))
    }
    return { ...stage, key, fleet, devices }
  }

  describe('a simulated fleet', () => {
    it('enrolls plausible machines, reports, and submits logs', async () => {
      const { fleet, devices, client } = await startStage()
      const { end, enrolled, events } = await fleet({
        count: 12,
        platform: 'linux/x64,windows/arm64',
        logsPerMinute: 1200,
        eventsPerMinute: 1200,
      })
      await enrolled
      expect(events.find(({ event }) => event === 'enrolled')).toMatchObject({ agents: 12 })
      await soon(async () => {
        const all = await devices()
        expect(all.map(({ hostname }) => hostname)).toContain('sim-00012')
        expect(
          all.filter(({ status, lastUser }) => status === 'online' && lastUser !== null).length,
        ).toBeGreaterThan(0)
      })
      const all = await devices()
      expect(new Set(all.map(({ osType }) => osType))).toEqual(new Set(['linux', 'windows']))
      const shown = await client.call(api.devices.show, { params: { id: all[0]!.id } })
      expect(shown.disks).toHaveLength(1)
      expect(shown.network[0]!.ipAddress).toMatch(/^10\./)
      await soon(async () => {
        const logs = await client.call(api.diagnosticLogs.list, { params: { id: all[0]!.id } })
        expect(logs.data.length).toBeGreaterThan(0)
      })
      // By now the last agent may not have reported yet, and none twice.
      await soon(async () => {
        const last = events.at(-1) as { event: string; heartbeats?: number }
        expect(last).toMatchObject({ event: 'progress', online: 12 })
        expect(last.heartbeats).toBeGreaterThan(12)
      })
      const summary = await end()
      expect(summary).toMatchObject({ agents: 12, enrolled: 12, online: 12, failures: 0, refused: 0 })
      expect(summary.heartbeats).toBeGreaterThan(12)
      expect(summary.logs).toBeGreaterThan(0)
      expect(summary.events).toBeGreaterThan(0)
      expect(summary.versions).toEqual({ '0.1.0': 12 })
    })

    it('answers live queries and commands over its connections', async () => {
      const { fleet, devices, client } = await startStage()
      const { end, enrolled } = await fleet({ count: 3, websockets: 3 })
      await enrolled
      const [device] = await devices()
      const params = { deviceId: device!.id }
      await soon(async () => {
        const { data } = await client.call(api.liveLogs.list, { params })
        expect(data.map(({ name }) => name)).toEqual(['system'])
      })
      const asked = { params: { ...params, name: 'system' }, query: { level: 'error', limit: 5 } } as const
      const { data, pagination } = await client.call(api.liveLogs.events, asked)
      expect(data).toHaveLength(5)
      expect(data.every(({ level }) => level === 'error')).toBe(true)
      expect(pagination.total).toBeGreaterThan(5)
      const one = { params: { ...asked.params, recordId: String(data[0]!.recordId) } }
      expect(await client.call(api.liveLogs.record, one)).toMatchObject({
        recordId: data[0]!.recordId,
      })
      const other = client.call(api.liveLogs.events, { params: { ...params, name: 'no-such-log' } })
      await expect(other).rejects.toMatchObject({ status: 404 })

      await client.call(api.deviceCommands.setAutoUpdate, {
        params: { id: device!.id },
        body: { enabled: false },
      })
      await soon(async () => {
        const shown = await client.call(api.devices.show, { params: { id: device!.id } })
        expect(shown.autoUpdate).toEqual({ desired: false, acknowledged: false })
      })
      const summary = await end()
      expect(summary.liveQueries).toBeGreaterThanOrEqual(4)
      expect(summary.commands).toBe(1)
      expect(summary.connections).toMatchObject({ open: 3, lost: 0 })
    })

    it('follows a promoted version, and reports it', async () => {
      const { fleet, devices, service } = await startStage()
      const { end, enrolled } = await fleet({ count: 5 })
      await enrolled
      await addRelease(service, '1.1.0', { promoted: true })
      await soon(async () => {
        const all = await devices()
        expect(all.map(({ agentVersion, update }) => [agentVersion, update])).toEqual(
          Array(5).fill(['1.1.0', null]),
        )
      })
      const summary = await end()
      expect(summary).toMatchObject({ updates: { begun: 5, done: 5, failed: 0 }, versions: { '1.1.0': 5 } })
    })

    it.each([
      ['crash', { agentVersion: '0.1.0', update: { version: '1.1.0', state: 'rolled_back' } }],
      ['refuse', { agentVersion: '0.1.0', update: { version: '1.1.0', state: 'refused' } }],
      ['wrong', { agentVersion: '1.1.0-wrong', update: { version: '1.1.0', state: 'failed' } }],
      ['silent', { agentVersion: '0.1.0', status: 'updating', update: { state: 'updating' } }],
    ])('with the failure mode %s fails in that way', async (mode, expected) => {
      const { fleet, devices, service } = await startStage()
      const { end, enrolled } = await fleet({ count: 2, failures: `${mode}=100%` })
      await enrolled
      await addRelease(service, '1.1.0', { promoted: true })
      await soon(async () => {
        expect(await devices()).toEqual(Array(2).fill(expect.objectContaining(expectedOf(expected))))
      })
      const summary = await end()
      expect(summary).toMatchObject({ updates: { done: 0 } })
      expect(summary.updates.failed).toBeGreaterThanOrEqual(2)
      expect(summary.online).toBe(mode === 'silent' ? 0 : 2)
    })

    it('with slow updates is updating for long, and then on the version', async () => {
      const { fleet, devices, service } = await startStage()
      const { end, enrolled } = await fleet({ count: 2, failures: 'slow=100%', updateMs: 50 })
      await enrolled
      await addRelease(service, '1.1.0', { promoted: true })
      await soon(async () => {
        const states = (await devices()).map(({ status, update }) => [status, update?.state])
        expect(states).toEqual(Array(2).fill(['updating', 'updating']))
      })
      await soon(async () => {
        expect((await devices()).map(({ agentVersion }) => agentVersion)).toEqual(['1.1.0', '1.1.0'])
      })
      expect(await end()).toMatchObject({ updates: { begun: 2, done: 2 } })
    })

    it('resumes from its saved state without enrolling', async () => {
      const { fleet, devices } = await startStage()
      const first = await fleet({ count: 4 })
      await first.enrolled
      await first.end()
      const known = first.kept.at(-1)!
      const before = (await devices()).map(({ id }) => id)
      const second = await fleet({ count: 6, known })
      await second.enrolled
      expect((await second.end()).enrolled).toBe(6)
      const after = (await devices()).map(({ id }) => id)
      expect(after).toHaveLength(6)
      expect(after).toEqual(expect.arrayContaining(before))
    })

    it('rotates its tokens when they are old', async () => {
      const clock = testClock(new Date().toISOString())
      const { fleet } = await startStage({ clock })
      const { kept, enrolled, end } = await fleet({ count: 2 })
      await enrolled
      const before = kept.at(-1)!.map(({ token }) => token)
      clock.forward(40 * 86_400)
      await soon(async () => {
        for (const { token } of kept.at(-1)!) expect(before).not.toContain(token)
      })
      const summary = await end()
      expect(summary).toMatchObject({ refused: 0, online: 2 })
    })

    it('waits while enrollment is rate-limited for its address', async () => {
      const { fleet } = await startStage({ env: { RATE_LIMIT_ENROLL_IP: '5/2' } })
      const { enrolled, events, end } = await fleet({ count: 12 })
      await enrolled
      expect(events.find(({ event }) => event === 'waiting')).toMatchObject({ seconds: expect.any(Number) })
      expect(await end()).toMatchObject({ enrolled: 12 })
    })

    it('ends at once when its key is refused, with the reason', async () => {
      const { service } = await startStage()
      const { ended } = await startFleet(service.url, 'f'.repeat(64))
      await expect(ended).rejects.toMatchObject({ status: 401, code: 'enrollment_key_not_found' })
    })

    it('keeps the enrolled agents when the key is used up', async () => {
      const { service, client } = await startStage()
      const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'small', maxUsage: 3 } })
      const { ended, kept } = await startFleet(service.url, key, { count: 5 })
      await expect(ended).rejects.toMatchObject({ code: 'enrollment_key_exhausted' })
      expect(kept.at(-1)).toHaveLength(3)
    })
  })

  const expectedOf = ({ update, ...rest }: { update: object }) => ({
    ...rest,
    update: expect.objectContaining(update),
  })
})
