import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openMigrated } from '../databases.ts'
import { enroller } from '../devices/device-fixture.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let service: TestService
let world: World
let device: { deviceId: string; agentId: string; authToken: string }

beforeAll(async () => {
  service = await serviceOn(await openMigrated('sqlite'), {
    env: { COMMAND_RESULT_BYTES_PER_DEVICE: '65536' },
  })
  world = await buildWorld(service)
  device = await (await enroller(service, world.tokens.bakery))('web-1')
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) =>
  home.run(args, { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery } })
const params = () => ({ id: device.agentId })
const fetched = async () =>
  (await service.client(device.authToken).call(api.agentCommands.list, { params: params() })).commands
const answer = (commandId: string, body: Record<string, unknown>) =>
  service.client(device.authToken).call(api.agentCommands.result, {
    params: { ...params(), commandId },
    body: { status: 'completed', ...body } as never,
  })

describe('svc devices command', () => {
  it('takes the payload as flags of the type, or as JSON', async () => {
    const sent = await svc('devices', 'command', 'web-1', 'collect', '--what', 'inventory, logs', '--json')
    expect(sent).toMatchObject({ code: 0 })
    expect(JSON.parse(sent.stdout)).toMatchObject({
      type: 'collect',
      status: 'pending',
      deviceId: device.deviceId,
    })
    const level = ['set_log_level', '--level', 'debug', '--for', '2h']
    expect((await svc('devices', 'command', 'web-1', ...level)).stdout).toMatch(
      /^set_log_level waits for the agent: [0-9a-f-]{36}\n$/,
    )
    await svc('devices', 'command', 'web-1', 'set_auto_update', '--enabled', 'off')
    await svc('devices', 'command', 'web-1', 'collect', '--payload', '{"what": ["metrics"]}')
    expect((await fetched()).map(({ type, payload }) => ({ type, payload }))).toEqual([
      { type: 'collect', payload: { what: ['inventory', 'logs'] } },
      { type: 'set_log_level', payload: { level: 'debug', durationMinutes: 120 } },
      { type: 'set_auto_update', payload: { enabled: false } },
      { type: 'collect', payload: { what: ['metrics'] } },
    ])
  })

  it('refuses invalid payloads, in the client or the service', async () => {
    const both = ['--payload', '{}', '--level', 'debug']
    for (const args of [
      ['collect'],
      ['collect', ...both],
      ['collect', '--level', 'debug'],
      ['format_disk'],
    ]) {
      const failed = await svc('devices', 'command', 'web-1', ...args, '--json')
      expect(failed).toMatchObject({ code: 2, stdout: '' })
      expect(failureOf(failed).message).not.toBe('')
    }
    const dry = await svc('devices', 'command', 'web-1', 'collect', '--what', 'logs', '--dry-run', '--json')
    expect(JSON.parse(dry.stdout)).toMatchObject({
      dryRun: true,
      request: { body: { type: 'collect', payload: { what: ['logs'] } } },
    })
    expect(await fetched()).toEqual([])
  })

  it('waits for the agent with --wait, and shows the result', async () => {
    const connected = { agentId: device.agentId, agentToken: device.authToken }
    const agent = await RawAgent.connect(service.url, connected, ({ type, payload }) =>
      type === 'collect'
        ? { exitCode: 0, durationMs: 12, stdout: 'all \u001b[31mred\u001b[0m\n', result: payload }
        : { status: 'failed', error: 'the disk is full' },
    )
    const done = await svc('devices', 'command', 'web-1', 'collect', '--what', 'logs', '--wait')
    expect(done).toMatchObject({ code: 0, stderr: '' })
    expect(done.stdout).toBe(
      'all \\u001b[31mred\\u001b[0m\n{\n  "what": [\n    "logs"\n  ]\n}\ncollect completed in 12 ms with exit code 0\n',
    )
    const level = ['set_log_level', '--level', 'info', '--wait']
    const failed = await svc('devices', 'command', 'web-1', ...level)
    expect(failed).toMatchObject({ code: 1, stdout: 'set_log_level failed: the disk is full\n' })
    const asJson = await svc('devices', 'command', 'web-1', ...level, '--json')
    expect(asJson.code).toBe(1)
    expect(JSON.parse(asJson.stdout)).toMatchObject({
      status: 'failed',
      result: { error: 'the disk is full' },
    })
    agent.socket.terminate()
  })

  it('stops waiting after the timeout, and prints how to look later', async () => {
    const args = ['collect', '--what', 'logs', '--wait', '--timeout', '5s', '--json']
    const late = await svc('devices', 'command', 'web-1', ...args)
    expect(late.code).toBe(124)
    const { code, hint } = failureOf(late)
    expect(code).toBe('device_timeout')
    const [, deviceId, id] = /svc devices result (\S+) (\S+)/.exec(String(hint)) ?? []
    expect((await svc('devices', 'result', deviceId!, id!)).stdout).toMatch(
      /^collect (has been waiting|was sent)/,
    )
    const [waiting] = await fetched()
    await answer(waiting!.id, { stdout: 'one\ntwo\n' })
    expect((await svc('devices', 'result', deviceId!, id!)).stdout).toBe('one\ntwo\ncollect completed\n')
    expect((await svc('devices', 'result', 'web-1', id!, '--jq', '.result.stdout')).stdout).toBe('one\ntwo\n')
  })
})

describe('svc devices result', () => {
  it('reports an output that was dropped for a later one', async () => {
    for (const size of [60_000, 50_000]) {
      await svc('devices', 'command', 'web-1', 'collect', '--what', 'logs')
      const [given] = await fetched()
      await answer(given!.id, { stdout: 'x'.repeat(size) })
    }
    const all = await svc('devices', 'commands', 'web-1', '--limit', '2', '-q')
    const [later, earlier] = all.stdout.trim().split('\n')
    expect((await svc('devices', 'result', 'web-1', earlier!)).stdout).toMatch(
      /^its output of 60\d+ bytes was deleted at \S+Z, to make room for later commands\ncollect completed\n$/,
    )
    expect((await svc('devices', 'result', 'web-1', later!)).stdout).toMatch(/^x{50000}\n/)
    const shown = await svc('devices', 'result', 'web-1', earlier!, '--jq', '.result.dropped.bytes')
    expect(Number(shown.stdout)).toBeGreaterThan(60_000)
  })
})

describe('svc devices commands', () => {
  it('lists commands, newest first, as a table, as IDs and as JSON', async () => {
    const all = await svc('devices', 'commands', 'web-1', '--json')
    const { data } = JSON.parse(all.stdout) as { data: { id: string; status: string; type: string }[] }
    expect(data.length).toBeGreaterThan(4)
    const ids = await svc('devices', 'commands', 'web-1', '-q', '--limit', '2')
    expect(ids.stdout).toBe(`${data[0]!.id}\n${data[1]!.id}\n`)
    const failed = await svc('devices', 'commands', 'web-1', '--status', 'failed', '--columns', 'type,status')
    expect(failed.stdout).toMatch(/^TYPE +STATUS\n(\S+ +failed\n)+$/)
  })

  it('is refused to users who may not see the device', async () => {
    const elsewhere = { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.garage } }
    const other = await home.run(['devices', 'commands', device.deviceId, '--json'], elsewhere)
    expect(other).toMatchObject({ code: 3, stdout: '' })
    expect(failureOf(other).code).toBe('not_found')
  })
})

describe('svc agent auto-update', () => {
  it('enables or disables automatic updates of a device, and tells its agent', async () => {
    const shown = async () =>
      JSON.parse((await svc('devices', 'show', 'web-1', '--json')).stdout).autoUpdate as unknown
    const on = await svc('agent', 'auto-update', 'web-1', 'ON')
    expect(on).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Sent to its agent: [0-9a-f-]{36}\n$/),
    })
    expect(await shown()).toEqual({ desired: true, acknowledged: null })
    await svc('agent', 'auto-update', 'web-1', 'off')
    const command = (await fetched()).at(-1)!
    expect(command).toMatchObject({ type: 'set_auto_update', payload: { enabled: false } })
    await answer(command.id, { result: { enabled: false } })
    expect(await shown()).toEqual({ desired: false, acknowledged: false })
    const wrong = await svc('agent', 'auto-update', 'web-1', 'maybe')
    expect(wrong).toMatchObject({ code: 2, stdout: '' })
    expect(wrong.stderr).toContain('neither on nor off')
    expect((await svc('agent', 'auto-update', 'web-1')).code).toBe(2)
  })
})
