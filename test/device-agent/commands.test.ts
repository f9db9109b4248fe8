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

/** A service that sends these commands in its first heartbeats. */
const serviceWith = (commands: object[], times = 1) =>
  standIn((request, before) => {
    if (request.path.endsWith('/result')) return stored
    if (isBeat(request) && before.filter(isBeat).length < times) return reply({ commands })
    return agreeable(request)
  })

describe('a command', () => {
  test('is performed, and its result is reported', async () => {
    await using service = await serviceWith([
      { id: id(1), type: 'set_auto_update', payload: { enabled: false } },
      { id: id(2), type: 'set_log_level', payload: { level: 'debug', durationMinutes: 5 } },
      { id: id(3), type: 'collect', payload: { what: ['inventory', 'metrics', 'logs', 'metrics'] } },
    ])
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(3), { timeout: 30_000 })
    const resultsById = Object.fromEntries(results(service.received).map((one) => [String(one.id), one]))
    expect(resultsById[id(1)]).toMatchObject({ status: 'completed', result: { enabled: false } })
    expect(resultsById[id(2)]).toMatchObject({ status: 'completed' })
    expect(resultsById[id(3)]).toMatchObject({
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
  ])('%s with %j is reported as failed, and changes nothing', async (type, payload, error) => {
    await using service = await serviceWith([{ id: id(1), type, payload }])
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(1), { timeout: 30_000 })
    expect(results(service.received)[0]).toMatchObject({
      status: 'failed',
      error: expect.stringContaining(error),
    })
  })

  test('that is sent again is not repeated; its result is reported again', async () => {
    await using service = await serviceWith(
      [{ id: id(1), type: 'collect', payload: { what: ['inventory'] } }],
      3,
    )
    await live(service.url, { pace: { once: true } })
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(2), { timeout: 30_000 })
    expect(new Set(results(service.received).map(({ startedAt }) => startedAt)).size).toBe(1)
    // One with each start, and a collected one.
    expect(service.count('/inventory')).toBe(3)
  })

  test('during which the agent was killed is reported as failed, and not repeated', async () => {
    await using service = await serviceWith([
      { id: id(1), type: 'collect', payload: { what: ['inventory'] } },
    ])
    commandHistory(join(stateDir(), 'commands.json')).begin(id(1))
    await live(service.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(service.received)).toHaveLength(1), { timeout: 30_000 })
    expect(results(service.received)[0]).toMatchObject({
      status: 'failed',
      error: expect.stringContaining('ended'),
    })
    expect(service.count('/inventory')).toBe(1)
  })

  test('whose result could not be reported is reported after a restart', async () => {
    await using unavailable = await standIn((request, before) =>
      request.path.endsWith('/result')
        ? refusal(503, 'unavailable')
        : isBeat(request) && !before.some(isBeat)
          ? reply({ commands: [{ id: id(1), type: 'set_auto_update', payload: { enabled: true } }] })
          : agreeable(request),
    )
    await live(unavailable.url, { pace: { once: true } })
    await vi.waitFor(() => expect(results(unavailable.received)).toHaveLength(1), { timeout: 30_000 })
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
  ])('whose result the service refuses for good (%s) is reported only once', async (code, status) => {
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

describe('the reply to a heartbeat', () => {
  test('switches auto-update as decided, and the next heartbeat acknowledges it', async () => {
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
  ])('that is invalid (%j) does not stop the agent', async (body) => {
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

  /** A service that rotates tokens; `counts` returns the accepted ones. */
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

  test('are replaced in two steps; the new ones are on disk before they are confirmed', async () => {
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

  test('work after a crash between the two steps, whichever the service accepts', async () => {
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

  test('are requested with growing pauses while the service fails, and heartbeats continue', async () => {
    await using service = await rotating(
      () => [authToken],
      ({ path }) => (path.endsWith('/rotate-token') ? refusal(503, 'unavailable') : undefined),
    )
    await live(service.url, { seconds: 3600 })
    expect(service.count('/heartbeat')).toBe(61)
    expect(service.count('/rotate-token')).toBeLessThan(8)
    expect(service.count('/rotate-token')).toBeGreaterThan(3)
  })

  test('stay unchanged where the new ones cannot be stored', async () => {
    await using service = await rotating(() => [authToken])
    await live(service.url, { pace: { once: true }, machine: {} })
    const file = join(stateDir(), 'identity.json')
    // The file cannot be replaced: a directory is in the way of its draft.
    const { mkdirSync, rmSync } = await import('node:fs')
    const identity = JSON.parse(readFileSync(file, 'utf8'))
    writeFileSync(file, JSON.stringify({ ...identity, authToken, staged: undefined }), { mode: 0o600 })
    mkdirSync(join(`${file}.new`, 'in-the-way'), { recursive: true })
    const [requests, confirms] = [service.count('/rotate-token'), service.count('/confirm')]
    const { stopped } = await live(service.url, { seconds: 60 })
    rmSync(`${file}.new`, { recursive: true })
    expect(service.count('/rotate-token')).toBeGreaterThan(requests)
    expect(service.count('/confirm')).toBe(confirms)
    expect(stopped).toBe(true)
    expect(service.received.filter(isBeat).slice(-1).map(bearer)).toEqual([authToken])
  })
})
