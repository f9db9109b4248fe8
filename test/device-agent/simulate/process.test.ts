import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { binary, Home } from '../../cli/run.ts'
import { type Answer, agreeable, refusal, standIn } from '../stand-in.ts'

const key = 'f00d'.repeat(16)
let home: Home
beforeEach(() => {
  home = new Home()
})
afterEach(() => home.remove())

/** A service that enrolls any number of agents. */
function manyAgents(more: (path: string, n: number) => Answer | undefined = () => undefined) {
  let enrolled = 0
  return standIn((request, before) => {
    const said = more(request.path, before.length)
    if (said) return said
    if (!request.path.endsWith('/enroll')) return agreeable(request)
    const { status, body } = agreeable(request) as { status: number; body: object }
    const id = (++enrolled).toString(16).padStart(64, '0')
    return { status, body: { ...body, agentId: id, authToken: `svc_${id}` } }
  })
}

const simulate = (url: string, args: string[], input?: string) =>
  home.run(['agent', 'simulate', '--url', url, ...args], input === undefined ? {} : { input })

const lines = (out: string) =>
  out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown> & { event: string })

describe('svc agent simulate', () => {
  it('ends after --for with a summary on standard output', async () => {
    await using service = await manyAgents()
    const { code, stdout, stderr } = await simulate(
      service.url,
      ['--count', '3', '--enrollment-key', '-', '--interval', '500ms', '--for', '1s'],
      `${key}\n`,
    )
    expect({ code, stderr }).toEqual({ code: 0, stderr: '3 agents are enrolled; stop with Ctrl-C\n' })
    expect(stdout).toMatch(
      /^Agents: {6}3 of 3, 3 online\nHeartbeats: {2}\d+ in \d s, .*; \d+ late, 0 missed\nAnswered in: p50 .+\nFailures: {4}0\nVersions: {4}\S+: 3\nMemory: {6}\d+ MB\n$/,
    )
    expect(service.received.filter(({ path }) => path.endsWith('/enroll'))).toHaveLength(3)
    expect(stdout + stderr).not.toContain(key)
  })

  it('prints NDJSON with --json, the summary last', async () => {
    await using service = await manyAgents()
    const env = { SVC_ENROLLMENT_KEY: key }
    const flags = ['--count', '2', '--interval', '500ms', '--for', '600ms', '--json', '--version', '3.2.1']
    const { code, stdout, stderr } = await home.run(['agent', 'simulate', '--url', service.url, ...flags], {
      env,
    })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const printed = lines(stdout)
    expect(printed[0]).toEqual({ event: 'enrolled', agents: 2, seconds: expect.any(Number) })
    expect(printed.at(-1)).toMatchObject({
      event: 'summary',
      agents: 2,
      enrolled: 2,
      online: 2,
      missed: 0,
      failures: 0,
      versions: { '3.2.1': 2 },
      p50Ms: expect.any(Number),
      p99Ms: expect.any(Number),
      memoryMb: expect.any(Number),
      reasons: {},
    })
  })

  it('ends at once on Ctrl-C, with the summary', async () => {
    await using service = await manyAgents()
    const args = ['agent', 'simulate', '--url', service.url, '--count', '2', '--interval', '20s', '--json']
    const child = spawn(process.execPath, [binary, ...args], {
      env: { ...home.env, SVC_ENROLLMENT_KEY: key },
    })
    let out = ''
    child.stdout.on('data', (chunk) => {
      out += chunk
    })
    while (!out.includes('"enrolled"')) await once(child.stdout, 'data')
    const asked = performance.now()
    child.kill('SIGINT')
    const [code] = await once(child, 'close')
    expect(performance.now() - asked).toBeLessThan(5000)
    expect(code).toBe(0)
    expect(lines(out).at(-1)).toMatchObject({ event: 'summary', enrolled: 2 })
  })

  it('exits with 1 when a heartbeat was missed', async () => {
    await using service = await manyAgents((path) => (path.endsWith('/heartbeat') ? 'hang' : undefined))
    const flags = ['--count', '1', '--interval', '200ms', '--for', '900ms', '--json']
    const env = { SVC_ENROLLMENT_KEY: key }
    const { code, stdout } = await home.run(['agent', 'simulate', '--url', service.url, ...flags], { env })
    expect(code).toBe(1)
    expect(lines(stdout).at(-1)).toMatchObject({ event: 'summary', heartbeats: 0, online: 0 })
    expect(Number(lines(stdout).at(-1)!.missed)).toBeGreaterThan(1)
  })

  it('resumes with --state, without enrolling and without a key', async () => {
    await using service = await manyAgents()
    const file = join(home.path, 'fleet.json')
    const flags = ['--interval', '400ms', '--for', '500ms', '--state', file, '--json']
    const first = await simulate(service.url, ['--count', '3', ...flags, '--enrollment-key', '-'], key)
    expect(first.code).toBe(0)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file, 'utf8')).not.toContain(key)
    // The URL of the enrollment is stored as well.
    const again = await home.run(['agent', 'simulate', '--count', '3', ...flags])
    expect(again.code).toBe(0)
    expect(lines(again.stdout).at(-1)).toMatchObject({ enrolled: 3, online: 3 })
    expect(service.count('/enroll')).toBe(3)
    const larger = await simulate(service.url, ['--count', '5', ...flags, '--enrollment-key', '-'], key)
    expect(larger.code).toBe(0)
    expect(service.count('/enroll')).toBe(5)
  })

  it.each<[string, string[], string]>([
    ['a remote service', ['--url', 'http://192.0.2.7:3000'], '--allow-remote'],
    ['a key on the command line', ['--enrollment-key', key], 'takes no value on the command line'],
    ['an invalid interval', ['--interval', 'often'], '--interval takes a time'],
    ['an unknown failure mode', ['--failures', 'explode=1%'], 'Unknown failure "explode"'],
    ['an unknown platform', ['--platform', 'beos/x64'], '--platform takes machines'],
    ['more connections than agents', ['--websockets', '5'], '--websockets cannot be more than --count'],
    ['too many agents', ['--count', '100001'], '--count'],
    ['no key', [], 'Missing --enrollment-key'],
  ])('refuses %s, and changes nothing', async (_, args, words) => {
    await using service = await manyAgents()
    const flags = args.includes('--url') ? [] : ['--url', service.url]
    const { code, stderr, stdout } = await home.run(['agent', 'simulate', '--count', '2', ...flags, ...args])
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain(words)
    expect(service.received.filter(({ path }) => path !== '/api/v1/health')).toEqual([])
  })

  it('reports that nothing listens, or that the key is refused', async () => {
    const env = { SVC_ENROLLMENT_KEY: key }
    const nobody = await home.run(['agent', 'simulate', '--url', 'http://127.0.0.1:9', '--count', '1'], {
      env,
    })
    expect(nobody).toMatchObject({ code: 8, stderr: expect.stringContaining('connection refused') })
    await using service = await manyAgents((path) =>
      path.endsWith('/enroll') ? refusal(401, 'enrollment_key_exhausted') : undefined,
    )
    const refused = await home.run(['agent', 'simulate', '--url', service.url, '--count', '2'], { env })
    expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('enrollment_key_exhausted') })
  })

  it('refuses a state file that others can read, or of another fleet', async () => {
    await using service = await manyAgents()
    const fleet = { url: 'http://127.0.0.1:1', seed: 1, platform: 'linux/x64', agents: [] }
    const file = home.write('fleet.json', JSON.stringify(fleet))
    chmodSync(file, 0o644)
    const run = (...more: string[]) => simulate(service.url, ['--count', '1', '--state', file, ...more])
    expect(await run()).toMatchObject({ code: 2, stderr: expect.stringContaining('chmod 600') })
    chmodSync(file, 0o600)
    expect(await run()).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is enrolled at http://127.0.0.1:1'),
    })
    const none = await home.run(['agent', 'simulate', '--count', '1', '--state', file, '--seed', '2'])
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('--seed 1') })
    expect(existsSync(file)).toBe(true)
  })
})
