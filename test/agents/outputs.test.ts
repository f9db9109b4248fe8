import pino from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { CommandWatch } from '../../daemon/command-watch.ts'
import { deleteOldCommands } from '../../src/agents/commands/jobs.ts'
import { trimOutputs } from '../../src/agents/commands/output-quota.ts'
import { api } from '../../src/api.ts'
import { ByteQuota, type Excess } from '../../src/logs/quota.ts'
import { inTurn } from '../databases.ts'
import { begin } from '../devices/device-fixture.ts'
import { testClock } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { makeNoRoom } from '../logs/room.ts'
import { metricValues } from '../metric-values.ts'

const kib = 1024

inTurn((open) => {
  const start = async (env: Record<string, string> = {}) => {
    const clock = testClock(new Date().toISOString())
    const stage = await begin(open, { clock, env: { METRICS_TOKEN: 'a token for metrics', ...env } })
    const { service, client } = stage
    const enroll = async (name: string) => {
      const { agentId, deviceId, authToken } = await stage.enroll(name)
      const own = service.client(authToken)
      const params = { id: deviceId }
      const give = async () => {
        const body = { type: 'collect', payload: { what: ['logs'] } } as never
        const { id: commandId } = await client.call(api.deviceCommands.create, { params, body })
        clock.forward(1)
        await own.call(api.agentCommands.list, { params: { id: agentId } })
        return commandId
      }
      /** The agent runs a command with output of this size. Returns its id. */
      const run = async (size: number) => {
        const commandId = await give()
        await own.call(api.agentCommands.result, {
          params: { id: agentId, commandId },
          body: { status: 'failed', exitCode: 3, stdout: 'ä'.repeat(size / 2), error: 'no' } as never,
        })
        return commandId
      }
      const resultOf = async (commandId: string) =>
        (await client.call(api.deviceCommands.show, { params: { ...params, commandId } })).result
      const counted = async () => {
        const found = service.storage.read.selectFrom('devices').select('command_bytes')
        return (await found.where('id', '=', deviceId).executeTakeFirstOrThrow()).command_bytes
      }
      return { agent: { agentId, agentToken: authToken }, deviceId, give, run, resultOf, counted }
    }
    return { ...stage, clock, enroll }
  }
  const dropped = (bytes: number) => ({
    status: 'failed',
    exitCode: 3,
    stdout: null,
    error: 'no',
    dropped: { bytes: expect.toSatisfy((said: number) => said >= bytes && said < bytes + 300) },
  })

  describe('the outputs of the commands of a device', () => {
    it('make room for the newest: the oldest are dropped, and say so', async () => {
      const { enroll, service } = await start({ COMMAND_RESULT_BYTES_PER_DEVICE: `${300 * kib}` })
      const [device, other] = [await enroll('till-1'), await enroll('till-2')]
      const elsewhere = await other.run(250 * kib)
      const ids: string[] = []
      for (let n = 0; n < 5; n++) {
        ids.push(await device.run(100 * kib))
        expect(await device.counted()).toBeLessThanOrEqual(300 * kib)
      }
      const small = await device.run(10)
      for (const id of ids.slice(0, 3)) expect(await device.resultOf(id)).toMatchObject(dropped(100 * kib))
      for (const id of [...ids.slice(3), small]) {
        expect(await device.resultOf(id)).toMatchObject({ stdout: expect.stringMatching(/^ä+$/) })
        expect(await device.resultOf(id)).not.toHaveProperty('dropped')
      }
      expect(await other.resultOf(elsewhere)).not.toHaveProperty('dropped')
      const headers = { authorization: 'Bearer a token for metrics' }
      const metrics = await (await fetch(`${service.url}/metrics`, { headers })).text()
      expect(metrics).toContain('\nsvc_command_outputs_dropped_total 3\n')
    })

    it('may exceed the quota once, and make room for the next, also over the connection', async () => {
      makeNoRoom()
      const { enroll, service } = await start({ COMMAND_RESULT_BYTES_PER_DEVICE: `${100 * kib}` })
      const device = await enroll('till-1')
      const large = await device.run(500 * kib)
      expect(await device.resultOf(large)).not.toHaveProperty('dropped')
      const next = await device.give()
      const connected = await RawAgent.connect(service.url, device.agent)
      connected.result(next, { stdout: 'x'.repeat(3000) })
      await expect
        .poll(() => device.resultOf(next), { timeout: 10_000 })
        .toMatchObject({ status: 'completed' })
      expect(await device.resultOf(large)).toMatchObject(dropped(500 * kib))
      expect(await device.counted()).toBeLessThan(5 * kib)
    })

    it('are counted as stored, and no longer once deleted', async () => {
      const { enroll, service, clock } = await start()
      const device = await enroll('till-1')
      for (const size of [2000, 4000]) await device.run(size)
      expect(await device.counted()).toBeGreaterThan(6000)
      expect(await device.counted()).toBeLessThan(6600)
      clock.forward(31 * 86_400)
      await deleteOldCommands(service.storage, clock())
      expect(await device.counted()).toBe(0)
    })
  })

  describe('the outputs of the commands of an organization', () => {
    it('share a quota: the largest device loses its oldest outputs, a small one nothing', async () => {
      const { enroll, service, clock } = await start()
      const [large, small] = [await enroll('till-1'), await enroll('till-2')]
      const many: string[] = []
      for (let n = 0; n < 60; n++) many.push(await large.run(10 * kib))
      const few = await small.run(10 * kib)
      const excesses: Excess[] = []
      const quota = new ByteQuota({ perDevice: 2 ** 40, perOrg: 100 * kib }, (one) => excesses.push(one))
      const { bytes } = await trimOutputs(service.storage, quota, clock())
      expect(bytes).toBeGreaterThan(610 * kib)
      expect((await large.counted()) + (await small.counted())).toBeLessThanOrEqual(100 * kib)
      expect(await small.resultOf(few)).not.toHaveProperty('dropped')
      expect(await large.resultOf(many.at(-1)!)).not.toHaveProperty('dropped')
      const orgId = excesses[0]!.orgId
      expect(excesses).toEqual([
        { deviceId: large.deviceId, orgId, what: 'deleted', entries: expect.any(Number) },
      ])
      const droppedIn = []
      for (const id of many) droppedIn.push((await large.resultOf(id))?.dropped !== undefined)
      expect(droppedIn).toEqual(many.map((_, n) => n < excesses[0]!.entries))
    })

    it('are bounded by the running service', async () => {
      const { enroll, service } = await start({ COMMAND_RESULT_BYTES_PER_ORG: `${100 * kib}` })
      const devices = [await enroll('till-1'), await enroll('till-2')]
      for (let n = 0; n < 4; n++) for (const device of devices) await device.run(40 * kib)
      const all = async () => (await devices[0]!.counted()) + (await devices[1]!.counted())
      await expect.poll(all, { timeout: 10_000 }).toBeLessThanOrEqual(100 * kib)
      const headers = { authorization: 'Bearer a token for metrics' }
      const metrics = await (await fetch(`${service.url}/metrics`, { headers })).text()
      expect(metrics).toMatch(/\nsvc_command_result_bytes [1-9]/)
    })
  })
})

it('dropped outputs of a device are logged once per hour, and all are counted', async () => {
  const lines: Record<string, unknown>[] = []
  const metrics = new Registry()
  const watch = new CommandWatch(
    pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) }),
    metrics,
  )
  for (let n = 0; n < 50; n += 1) watch.add({ deviceId: 'a', orgId: 'o', what: 'deleted', entries: 2 })
  expect(lines).toMatchObject([
    { deviceId: 'a', orgId: 'o', dropped: 2, msg: expect.stringContaining('the oldest are deleted') },
  ])
  expect(await metricValues(metrics, 'svc_command_outputs_dropped_total')).toEqual({ '': 100 })
})
