import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { depth, randomFrom, seed } from '../../depth.ts'
import { beginningWith, builds, type Machine, machine } from './machine.ts'
import { type ReleaseHost, releaseHost } from './releases.ts'

vi.setConfig({ testTimeout: 240_000 })
const build = builds()
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** The installed binary is one of these, complete and startable. */
function isWhole(agent: Machine, files: string[]): boolean {
  const present = agent.installed()
  return files.some((file) => readFileSync(file).equals(present))
}

async function comesBack(agent: Machine, host: ReleaseHost, files: string[], version: string): Promise<void> {
  await vi.waitFor(
    () => {
      expect(host.lastVersion()).toBe(version)
      expect(agent.journal()?.pending).toBeUndefined()
    },
    { timeout: 90_000, interval: 100 },
  )
  const before = host.count('/heartbeat')
  await vi.waitFor(() => expect(host.count('/heartbeat')).toBeGreaterThan(before + 1), 20_000)
  expect(isWhole(agent, files)).toBe(true)
}

async function killedAt(ms: number, what: 'watchdog' | 'everything'): Promise<void> {
  const files = [build('1.0.0'), build('2.0.0')]
  await using host = await releaseHost({ files: { '2.0.0': files[1]! }, target: '2.0.0' })
  await using agent = machine(files[0]!, host.url, { supervised: true })
  await vi.waitFor(() => expect(host.lastVersion()).toBe('1.0.0'), { timeout: 30_000, interval: 20 })
  await wait(ms)
  if (what === 'everything') agent.killAll()
  else agent.kill()
  expect(isWhole(agent, files)).toBe(true)
  await comesBack(agent, host, files, '2.0.0')
  expect(agent.starts()).toBe(2)
  expect(host.statuses().filter(({ state }) => state !== 'updating')).toEqual([])
}

test.each(['watchdog', 'everything'] as const)(
  'an update succeeds whenever during it the %s is killed',
  async (what) => {
    // With five at a time an update takes about four seconds: these kills hit each of its steps.
    const count = depth(4, 8)
    const random = randomFrom(seed)
    const instants = Array.from({ length: count }, (_, n) => Math.floor(((n + random()) * 4800) / count))
    const failures: string[] = []
    const lane = async (): Promise<void> => {
      for (let ms = instants.shift(); ms !== undefined; ms = instants.shift()) {
        await killedAt(ms, what).catch((error) => failures.push(`${ms} ms: ${error.message}`))
      }
    }
    await Promise.all(Array.from({ length: 5 }, lane))
    expect(failures).toEqual([])
  },
)

test('a trial that kills the whole agent is started twice, and not again', async () => {
  const files = [build('1.0.0')]
  const deadly = `if (process.env.SVC_AGENT_PART === 'trial') process.kill(process.ppid, 'SIGKILL')`
  await using host = await releaseHost({
    files: { '2.0.0': beginningWith(build('2.0.0'), deadly) },
    target: '2.0.0',
  })
  await using agent = machine(files[0]!, host.url, { supervised: true })
  await vi.waitFor(() => expect(host.statuses().at(-1)?.state).toBe('rolled_back'), 60_000)
  expect(host.statuses().at(-1)!.reason).toBe('its trial was cut short')
  await comesBack(agent, host, files, '1.0.0')
  expect(agent.starts()).toBe(3)
})

test.each(['update.json', 'spool', 'commands.json', 'trust.json', 'alive.json'])(
  'a corrupted %s does not prevent the agent from starting',
  async (name) => {
    const files = [build('1.0.0')]
    await using host = await releaseHost({ files: {} })
    await using agent = machine(files[0]!, host.url, {
      prepare: ({ stateDir }) => {
        writeFileSync(join(stateDir, name), Buffer.from([0, 1, 2, 255, 123]))
      },
    })
    await vi.waitFor(() => expect(host.count('/heartbeat')).toBeGreaterThan(1), 20_000)
    expect(agent.starts()).toBe(1)
  },
)
