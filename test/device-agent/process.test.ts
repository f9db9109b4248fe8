import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { agreeable, beat, deviceId, refusal, standIn } from './stand-in.ts'

const svc = fileURLToPath(new URL('../../bin/svc.js', import.meta.url))
const key = 'f00d'.repeat(16)

let home: string
let stateDir: string
const children: ChildProcess[] = []
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'svc-agent-'))
  stateDir = join(home, 'state')
})
afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
  rmSync(home, { recursive: true, force: true })
})

/** The real command in its own process, with only this environment. */
function agentRun(
  args: string[],
  { env = {}, input = '' }: { env?: Record<string, string>; input?: string | null } = {},
) {
  const child = spawn(process.execPath, [svc, 'agent', 'run', '--state-dir', stateDir, ...args], {
    env: {
      PATH: process.env.PATH,
      HOME: home,
      SVC_CONFIG_DIR: join(home, 'config'),
      NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
      ...env,
    },
  })
  children.push(child)
  // null keeps standard input open, as a user does who has not typed the key yet.
  if (input !== null) child.stdin.end(input)
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk) => {
    out += chunk
  })
  child.stderr.on('data', (chunk) => {
    err += chunk
  })
  const ended = once(child, 'close').then(([exit]) => ({ exit: exit as number, out, err }))
  return {
    child,
    ended,
    /** Resolves once the event was printed. */
    async says(event: string): Promise<void> {
      while (!out.includes(`{"event":"${event}"`)) {
        if (child.exitCode !== null) throw new Error(`ended with ${child.exitCode}: ${err}`)
        await Promise.race([once(child.stdout, 'data'), ended])
      }
    },
  }
}

/** Without the host logs of this machine. */
const eventsOf = (out: string): Record<string, unknown>[] =>
  out
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
    .filter(({ event }) => event !== 'eventlogs')

describe('svc agent run --once', () => {
  test('enrolls, reports and prints what it did as NDJSON', async () => {
    await using service = await standIn()
    const { exit, out, err } = await agentRun(['--once', '--json', '--url', service.url], {
      env: { SVC_ENROLLMENT_KEY: key },
    }).ended
    expect({ exit, err }).toEqual({ exit: 0, err: '' })
    expect(eventsOf(out)).toEqual([
      expect.objectContaining({ event: 'enrolled', deviceId, url: service.url }),
      expect.objectContaining({ event: 'inventory', deviceId, network: expect.any(Number) }),
      expect.objectContaining({ event: 'heartbeat', deviceId, metrics: expect.any(Object) }),
    ])
    expect(statSync(join(stateDir, 'identity.json')).mode & 0o777).toBe(0o600)
    expect(existsSync(join(stateDir, 'agent.lock'))).toBe(false)
  })

  test('writes its messages for people only to standard error', async () => {
    await using service = await standIn()
    const { exit, out, err } = await agentRun(['--once', '--url', service.url, '--enrollment-key', '-'], {
      input: `${key}\n`,
    }).ended
    expect({ exit, out }).toEqual({ exit: 0, out: '' })
    expect(err).toMatch(
      /^Enrolled as device .+\nInventory sent: .+\nHeartbeat sent: CPU \d+ %, RAM \d+ %, disk \d+ %\n$/,
    )
    expect(service.received[0]?.body.enrollmentKey).toBe(key)
  })

  test('reuses the service that it enrolled with, unless another is given', async () => {
    await using first = await standIn()
    await using second = await standIn()
    const env = { SVC_ENROLLMENT_KEY: key }
    await agentRun(['--once', '--url', first.url], { env }).ended
    expect((await agentRun(['--once']).ended).exit).toBe(0)
    expect(first.count('/heartbeat')).toBe(2)
    expect((await agentRun(['--once'], { env: { SVC_URL: second.url } }).ended).exit).toBe(0)
    expect([first.count('/heartbeat'), second.count('/heartbeat'), second.count('/enroll')]).toEqual([
      2, 1, 0,
    ])
  })

  test.each([
    ['invalid_agent_credentials', 401, 4],
    ['device_decommissioned', 403, 5],
    ['rate_limited', 429, 7],
    ['unavailable', 503, 8],
  ])('ends with the exit code of %s', async (code, status, wanted) => {
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? refusal(status, code) : agreeable(request),
    )
    const run = agentRun(['--once', '--json', '--url', service.url], { env: { SVC_ENROLLMENT_KEY: key } })
    const { exit, err } = await run.ended
    expect(exit).toBe(wanted)
    expect(JSON.parse(err)).toMatchObject({ error: { code, status, requestId: 'r-1' } })
  })

  test('ends with 8 when nothing listens, and leaves no identity behind', async () => {
    const { exit, err } = await agentRun(['--once', '--url', 'http://127.0.0.1:1'], {
      env: { SVC_ENROLLMENT_KEY: key },
    }).ended
    expect(exit).toBe(8)
    expect(err).toContain('http://127.0.0.1:1')
    expect(existsSync(join(stateDir, 'identity.json'))).toBe(false)
  })
})

describe('the enrollment key', () => {
  test('is refused as a value on the command line, and not repeated', async () => {
    const { exit, out, err } = await agentRun(['--once', '--enrollment-key', key]).ended
    expect(exit).toBe(2)
    expect(err).toContain('--enrollment-key')
    expect(out + err).not.toContain(key)
  })

  test('is read from a file, and appears in no command line and no output', async () => {
    writeFileSync(join(home, 'key'), `${key}\n`, { mode: 0o600 })
    await using service = await standIn()
    const run = agentRun(['--json', '--url', service.url, '--enrollment-key', `@${join(home, 'key')}`])
    await run.says('inventory')
    expect(service.received[0]?.body.enrollmentKey).toBe(key)
    if (process.platform === 'linux') {
      expect(readFileSync(`/proc/${run.child.pid}/cmdline`, 'utf8')).not.toContain(key)
    }
    run.child.kill('SIGTERM')
    const { out, err } = await run.ended
    expect(out + err).not.toContain(key)
  })

  test.runIf(process.platform === 'linux')(
    'is not passed on to the programs that read the inventory',
    async () => {
      const seen = join(home, 'seen')
      writeFileSync(join(home, 'lscpu'), `#!/bin/sh\nenv > ${seen}\n`, { mode: 0o755 })
      await using service = await standIn()
      const env = { SVC_ENROLLMENT_KEY: key, PATH: `${home}:${process.env.PATH}` }
      expect((await agentRun(['--once', '--url', service.url], { env }).ended).exit).toBe(0)
      expect(readFileSync(seen, 'utf8')).toContain(`HOME=${home}`)
      expect(readFileSync(seen, 'utf8')).not.toContain(key)
    },
  )

  test('is required by its flag where there is no terminal to ask', async () => {
    const { exit, err } = await agentRun(['--once']).ended
    expect(exit).toBe(2)
    expect(err).toContain('Missing --enrollment-key')
  })

  test('is not read again once enrolled, and is still refused on the command line', async () => {
    await using service = await standIn()
    await agentRun(['--once', '--url', service.url], { env: { SVC_ENROLLMENT_KEY: key } }).ended
    const { exit } = await agentRun(['--once', '--enrollment-key', `@${join(home, 'gone')}`]).ended
    expect(exit).toBe(0)
    expect((await agentRun(['--once', '--enrollment-key', key]).ended).exit).toBe(2)
  })
})

describe.each(['SIGTERM', 'SIGINT'] as const)('%s', (signal) => {
  async function stopsAtOnce({ child, ended }: ReturnType<typeof agentRun>): Promise<void> {
    const since = performance.now()
    child.kill(signal)
    const { exit, out } = await ended
    expect(exit).toBe(0)
    expect(performance.now() - since).toBeLessThan(1500)
    expect(eventsOf(out).at(-1)).toEqual({ event: 'stopped' })
    expect(existsSync(join(stateDir, 'agent.lock'))).toBe(false)
  }

  test('ends an agent between two heartbeats with 0', async () => {
    await using service = await standIn()
    const run = agentRun(['--json', '--url', service.url], { env: { SVC_ENROLLMENT_KEY: key } })
    await run.says('inventory')
    await stopsAtOnce(run)
  })

  test('ends an agent that waits for a reply with 0', async () => {
    await using service = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? 'hang' : agreeable(request),
    )
    const run = agentRun(['--json', '--url', service.url], { env: { SVC_ENROLLMENT_KEY: key } })
    await run.says('enrolled')
    await vi.waitFor(() => expect(service.count('/heartbeat')).toBe(1), 10_000)
    await stopsAtOnce(run)
  })

  test('ends an agent that waits for its key with 0', async () => {
    const run = agentRun(['--json', '--enrollment-key', '-'], { input: null })
    await vi.waitFor(() => expect(existsSync(join(stateDir, 'agent.pid'))).toBe(true), 10_000)
    await stopsAtOnce(run)
  })

  test('ends an agent that waits for a retry with 0', async () => {
    const run = agentRun(['--json', '--url', 'http://127.0.0.1:1'], { env: { SVC_ENROLLMENT_KEY: key } })
    await run.says('failed')
    await stopsAtOnce(run)
  })
})

test('a second agent on the same state directory ends with 6 and does not affect the first', async () => {
  await using service = await standIn()
  const first = agentRun(['--json', '--url', service.url, '--interval', '1'], {
    env: { SVC_ENROLLMENT_KEY: key },
  })
  await first.says('inventory')
  const { exit, err } = await agentRun(['--once', '--json']).ended
  expect(exit).toBe(6)
  expect(JSON.parse(err).error.message).toContain(`process ${first.child.pid}`)
  const before = service.count('/heartbeat')
  await vi.waitFor(() => expect(service.count('/heartbeat')).toBeGreaterThan(before + 1), 10_000)
  first.child.kill('SIGTERM')
  expect((await first.ended).exit).toBe(0)
})

test('a killed agent resumes as the same device', async () => {
  await using service = await standIn((request) =>
    request.path.endsWith('/heartbeat') ? beat : agreeable(request),
  )
  const first = agentRun(['--json', '--url', service.url], { env: { SVC_ENROLLMENT_KEY: key } })
  await first.says('inventory')
  first.child.kill('SIGKILL')
  await first.ended
  const { exit, out } = await agentRun(['--once', '--json']).ended
  expect(exit).toBe(0)
  expect(eventsOf(out)[0]).toMatchObject({ event: 'resumed', deviceId })
  expect(service.count('/enroll')).toBe(1)
})
