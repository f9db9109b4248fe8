import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { commandHistory } from '../../src/device-agent/commands/history.ts'
import { identityStore } from '../../src/device-agent/state.ts'
import { livingAgents } from './live.ts'
import {
  type Answer,
  agreeable,
  authToken,
  beat,
  type Received,
  refusal,
  standIn,
  stored,
} from './stand-in.ts'

const { live, stateDir } = livingAgents()

const id = (n: number): string => `0198c0de-0000-7000-8000-00000000010${n}`
const reply = (more: object): Answer => ({
  status: 200,
  body: { ...(beat as { body: object }).body, ...more },
})
const isBeat = ({ path }: { path: string }): boolean => path.endsWith('/heartbeat')
const results = (received: Received[]): Record<string, unknown>[] =>
  received
    .filter(({ path }) => path.endsWith('/result'))
    .map(({ path, body }) => ({ id: path.split('/').at(-2), ...body }))

/** A service that asks for these commands in its first heartbeats. */
const asking = (commands: object[], times = 1) =>
  standIn((request, before) => {
    if (request.path.endsWith('/result')) return stored
    if (isBeat(request) && before.filter(isBeat).length < times) return reply({ commands })
    return agreeable(request)
  })

describe('a command', () => {
  test('is done, and how it ended is told', async () => {
    await using service = await asking([
      { id: id(1), type: 'set_auto_update', payload: { enabled: false } },
      { id: id(2), type: 'set_log_level', payload: { level: 'debug', durationMinutes: 5 } },
      { id: id(3), type: 'collect', payload: { what: ['inventory', 'metrics', 'logs', 'metrics'] } },
    ])
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(3))
    const told = Object.fromEntries(results(service.received).map((one) => [String(one.id), one]))
    expect(told[id(1)]).toMatchObject({ status: 'completed', result: { enabled: false } })
    expect(told[id(2)]).toMatchObject({ status: 'completed' })
    expect(told[id(3)]).toMatchObject({
      status: 'completed',
      result: { collected: ['inventory', 'metrics', 'logs'] },
      durationMs: expect.any(Number),
      startedAt: expect.any(String),
    })
    expect(service.count('/inventory')).toBe(2)
    expect(service.count('/heartbeat')).toBe(2)
    expect(JSON.parse(readFileSync(join(stateDir(), 'config.json'), 'utf8'))).toEqual({ autoUpdate: false })
  })

  test.each([
    ['format_disk', {}, 'does not know format_disk'],
    ['constructor', {}, 'does not know constructor'],
    ['set_auto_update', {}, 'enabled'],
    ['set_auto_update', { enabled: 'no' }, 'enabled'],
    ['collect', { what: [] }, 'what'],
    ['collect', { what: ['secrets'] }, 'what'],
    ['set_log_level', { level: 'loud' }, 'level'],
  ])('%s with %j is told to have failed, and changes nothing', async (type, payload, error) => {
    await using service = await asking([{ id: id(1), type, payload }])
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(1))
    expect(results(service.received)[0]).toMatchObject({
      status: 'failed',
      error: expect.stringContaining(error),
    })
  })

  test('that is sent again is not done again; its outcome is told again', async () => {
    await using service = await asking([{ id: id(1), type: 'collect', payload: { what: ['inventory'] } }], 3)
    await live(service.url, { pace: { once: true } })
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(2))
    expect(new Set(results(service.received).map(({ startedAt }) => startedAt)).size).toBe(1)
    // One with each start, and one that was asked for.
    expect(service.count('/inventory')).toBe(3)
  })

  test('in the middle of which the agent was killed is told to have failed, and not begun again', async () => {
    await using service = await asking([{ id: id(1), type: 'collect', payload: { what: ['inventory'] } }])
    commandHistory(join(stateDir(), 'commands.json')).begin(id(1))
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(1))
    expect(results(service.received)[0]).toMatchObject({
      status: 'failed',
      error: expect.stringContaining('ended'),
    })
    expect(service.count('/inventory')).toBe(1)
  })

  test('is answered after a restart when the service could not be told before, once it can', async () => {
    await using deaf = await standIn((request, before) =>
      request.path.endsWith('/result')
        ? refusal(503, 'unavailable')
        : isBeat(request) && !before.some(isBeat)
          ? reply({ commands: [{ id: id(1), type: 'set_auto_update', payload: { enabled: true } }] })
          : agreeable(request),
    )
    await live(deaf.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(deaf.received)).toHaveLength(1))
    await using service = await standIn((request) =>
      request.path.endsWith('/result') ? stored : agreeable(request),
    )
    await live(service.url, { seconds: 1 })
    expect(results(service.received)).toMatchObject([
      { id: id(1), status: 'completed', result: { enabled: true } },
    ])
  })

  test.each([
    ['not_found', 404],
    ['command_role_mismatch', 403],
    ['invalid_request', 400],
  ])('whose outcome the service will never take (%s) is not told for ever', async (code, status) => {
    await using service = await standIn((request, before) =>
      request.path.endsWith('/result')
        ? refusal(status, code)
        : isBeat(request) && !before.some(isBeat)
          ? reply({ commands: [{ id: id(1), type: 'set_auto_update', payload: { enabled: true } }] })
          : agreeable(request),
    )
    await live(service.url, { pace: { once: true } })
    await live(service.url, { seconds: 300 })
    expect(results(service.received)).toHaveLength(1)
  })
})

describe('the answer to a heartbeat', () => {
  test('switches updates off and on as people decided, and is acknowledged by the next', async () => {
    const said: unknown[] = []
    await using service = await standIn((request) => {
      if (!isBeat(request)) return agreeable(request)
      said.push(request.body.autoUpdate)
      return request.body.autoUpdate === false ? beat : reply({ configUpdate: { autoUpdate: false } })
    })
    const settings = await import('../../src/device-agent/settings.ts')
    const takesUpdates = () => settings.settingsStore(stateDir()).load().autoUpdate
    const updater = { takesUpdates, consider: () => {}, settled: async () => {} }
    await live(service.url, { seconds: 119, updater })
    expect(said).toEqual([true, false])
  })

  test.each([
    null,
    [],
    'fine',
    { commands: 'none', configUpdate: 7, upgradeTo: 9, rotateToken: 'yes', manifestTrustKeys: [null, 3] },
    { commands: [null, { id: 7 }, { type: 'x' }] },
  ])('that makes no sense (%j) ends nothing', async (body) => {
    await using service = await standIn((request) =>
      isBeat(request) ? { status: 200, body } : agreeable(request),
    )
    const { stopped, names } = await live(service.url, { seconds: 120 })
    expect(stopped).toBe(true)
    expect(names.filter((name) => name === 'heartbeat').length).toBeGreaterThan(1)
  })
})

describe('the tokens of an agent', () => {
  const fresh = `svc_${'d'.repeat(64)}`
  const bearer = ({ headers }: Received): string => String(headers.authorization).replace('Bearer ', '')
  const staged = { authToken: fresh, watchdogAuthToken: `svc_${'e'.repeat(64)}` }

  /** A service that replaces tokens: those that count are asked for each time. */
  const rotating = (counts: () => string[], special?: (request: Received) => Answer | undefined) =>
    standIn((request) => {
      const answer = special?.(request)
      if (answer) return answer
      if (request.path.endsWith('/rotate-token')) {
        return {
          status: 200,
          body: { ...staged, confirmationRequired: true, pendingExpiresAt: '2026-01-31T12:00:00Z' },
        }
      }
      if (request.path.endsWith('/confirm')) return stored
      if (request.path.endsWith('/enroll')) return agreeable(request)
      if (!counts().includes(bearer(request))) return refusal(401, 'invalid_agent_credentials')
      return isBeat(request) ? reply({ rotateToken: bearer(request) === authToken }) : agreeable(request)
    })

  test('are replaced in two steps, the new ones being on the disk before they are confirmed', async () => {
    const onDisk: unknown[] = []
    await using service = await rotating(
      () => [authToken, fresh],
      (request) => {
        if (request.path.endsWith('/confirm'))
          onDisk.push(identityStore(stateDir()).load()?.staged, bearer(request))
        return undefined
      },
    )
    const { names } = await live(service.url, { seconds: 100 })
    expect(onDisk).toEqual([staged, fresh])
    expect(names).toContain('token')
    expect(identityStore(stateDir()).load()).toMatchObject(staged)
    expect(identityStore(stateDir()).load()!.staged).toBeUndefined()
    expect(service.received.filter(isBeat).map(bearer)).toEqual([authToken, fresh])
  })

  test('count after a crash between the two steps, whichever the service had in mind', async () => {
    for (const counts of [[authToken], [fresh], [authToken, fresh]]) {
      await using first = await standIn()
      await live(first.url, { pace: { once: true } })
      const identity = identityStore(stateDir())
      identity.save({ ...identity.load()!, authToken, staged })
      await using service = await rotating(
        () => counts,
        (request) =>
          request.path.endsWith('/confirm') && !counts.includes(bearer(request))
            ? refusal(401, 'invalid_agent_credentials')
            : undefined,
      )
      const { failure, names } = await live(service.url, { pace: { once: true } })
      expect(failure, counts.join()).toBeUndefined()
      expect(names).toContain('heartbeat')
    }
  })

  test('are asked for ever more rarely while the service cannot, and heartbeats go on', async () => {
    await using service = await rotating(
      () => [authToken],
      ({ path }) => (path.endsWith('/rotate-token') ? refusal(503, 'unavailable') : undefined),
    )
    await live(service.url, { seconds: 3600 })
    expect(service.count('/heartbeat')).toBe(61)
    expect(service.count('/rotate-token')).toBeLessThan(8)
    expect(service.count('/rotate-token')).toBeGreaterThan(3)
  })

  test('stay as they are where the new ones cannot be kept', async () => {
    await using service = await rotating(() => [authToken])
    await live(service.url, { pace: { once: true }, machine: {} })
    const file = join(stateDir(), 'identity.json')
    // What cannot be replaced: a directory is in the way of the draft.
    const { mkdirSync, rmSync } = await import('node:fs')
    const identity = JSON.parse(readFileSync(file, 'utf8'))
    writeFileSync(file, JSON.stringify({ ...identity, authToken, staged: undefined }), { mode: 0o600 })
    mkdirSync(join(`${file}.new`, 'in-the-way'), { recursive: true })
    const confirms = service.count('/confirm')
    const { failure } = await live(service.url, { seconds: 60 })
    rmSync(`${file}.new`, { recursive: true })
    expect(service.count('/confirm')).toBe(confirms)
    expect(failure?.name).not.toBe('TypeError')
    expect(service.received.filter(isBeat).slice(-1).map(bearer)).toEqual([authToken])
  })
})
