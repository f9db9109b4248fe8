import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { agreeable, refusal, standIn } from '../stand-in.ts'
import { beginningWith, builds, machine, processesUnder } from '../update/machine.ts'

vi.setConfig({ testTimeout: 90_000, maxConcurrency: 4 })
const build = builds()
const patience = { timeout: 45_000, interval: 50 }
const until = (check: () => void) => vi.waitFor(check, patience)

/** The pid of the agent of a watchdog. */
const agentOf = ({ stateDir }: { stateDir: string }): number =>
  Number(readFileSync(join(stateDir, 'main.pid'), 'utf8'))

describe.concurrent('a watchdog', () => {
  test('restarts a killed agent, and the service is told', async () => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url)
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(0))
    const first = agentOf(one)
    process.kill(first, 'SIGKILL')
    const before = service.count('/heartbeat')
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(before + 1))
    expect(agentOf(one)).not.toBe(first)
    expect(one.starts()).toBe(1)
    expect(one.events()).toContainEqual({ event: 'restart', reason: 'SIGKILL', retryInSeconds: 1 })
    const logs = () =>
      service.received
        .filter(({ path }) => path.endsWith('/logs'))
        .flatMap(({ body }) => body.logs as object[])
    await until(() =>
      expect(logs()).toContainEqual(
        expect.objectContaining({
          level: 'warn',
          component: 'restart',
          message: expect.stringContaining('SIGKILL'),
        }),
      ),
    )
  })

  test('kills a hung agent, and restarts it', async () => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url, { settings: { silenceSeconds: 3 } })
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(0))
    const first = agentOf(one)
    process.kill(first, 'SIGSTOP')
    await until(() =>
      expect(one.events()).toContainEqual(expect.objectContaining({ reason: 'it became silent' })),
    )
    const before = service.count('/heartbeat')
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(before + 1))
    expect(processesUnder(one.home)).not.toContain(first)
  })

  test('does not restart an agent that waits for its service', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? 'hang' : agreeable(request),
    )
    await using one = machine(build('1.0.0'), service.url, { settings: { silenceSeconds: 3 } })
    await until(() => expect(service.count('/heartbeat')).toBe(1))
    await new Promise((resolve) => setTimeout(resolve, 8000))
    expect(one.events().filter(({ event }) => event === 'restart')).toEqual([])
  })

  test('that was frozen itself, as on a suspended machine, restarts nothing when it wakes', async () => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url, { settings: { silenceSeconds: 3 } })
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(0))
    process.kill(one.pid()!, 'SIGSTOP')
    await new Promise((resolve) => setTimeout(resolve, 7000))
    process.kill(one.pid()!, 'SIGCONT')
    const before = service.count('/heartbeat')
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(before + 3))
    expect(one.events().filter(({ event }) => event === 'restart')).toEqual([])
  })

  test('that is killed takes its agent with it, and its successor starts anew', async () => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url, { supervised: true })
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(0))
    const first = agentOf(one)
    one.kill()
    await until(() => expect(processesUnder(one.home)).not.toContain(first))
    const before = service.count('/heartbeat')
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(before + 1))
    expect(one.starts()).toBe(2)
    expect(processesUnder(one.home)).toHaveLength(2)
  })

  test.each(['SIGTERM', 'SIGINT'] as const)('ends its agent and itself with 0 on %s', async (signal) => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url)
    await until(() => expect(service.count('/heartbeat')).toBeGreaterThan(0))
    process.kill(one.pid()!, signal)
    expect(await one.terminate()).toBe(0)
    expect(processesUnder(one.home)).toEqual([])
    expect(one.events().at(-1)).toEqual({ event: 'stopped' })
  })

  test.each([
    ['invalid_agent_credentials', 401, 4],
    ['device_decommissioned', 403, 5],
  ])('ends with the exit code of its agent that is refused with %s', async (code, status, exit) => {
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? refusal(status, code) : agreeable(request),
    )
    await using one = machine(build('1.0.0'), service.url)
    expect(await one.ended()).toBe(exit)
    expect(processesUnder(one.home)).toEqual([])
    expect(one.events().filter(({ event }) => event === 'restart')).toEqual([])
    expect(one.output()).toContain(code)
  })

  test('restarts a broken agent with growing pauses, and never gives up', async () => {
    await using service = await standIn()
    const broken = beginningWith(
      build('1.0.0'),
      `if (process.env.SVC_AGENT_PART === 'agent') process.exit(13)`,
    )
    await using one = machine(broken, service.url)
    const pauses = () =>
      one.events().flatMap(({ event, retryInSeconds }) => (event === 'restart' ? [retryInSeconds] : []))
    await until(() => expect(pauses()).toEqual([1, 2, 4]))
    expect(processesUnder(one.home)).toContain(one.pid())
  })

  test('keeps a record of the running agent', async () => {
    await using service = await standIn()
    await using one = machine(build('1.0.0'), service.url)
    await until(() => expect(one.alive().heartbeats).toBeGreaterThan(1))
    expect(one.alive()).toEqual({
      version: '1.0.0',
      pid: agentOf(one),
      startedAt: expect.any(String),
      runningSeconds: expect.any(Number),
      aliveAt: expect.any(String),
      heartbeats: expect.any(Number),
      heartbeatAt: expect.any(String),
    })
  })
})
