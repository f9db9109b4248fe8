import { describe, expect, it } from 'vitest'
import { Heartbeat, Inventory } from '../../../src/agents/contract.ts'
import { inventoryOf, machineOf, metricsOf } from '../../../src/device-agent/simulate/machine.ts'
import {
  failureModes,
  parseFailures,
  parsePlanDuration,
  parsePlatforms,
} from '../../../src/device-agent/simulate/plan.ts'
import { seededRandom, weightedPick } from '../../../src/device-agent/simulate/seeded-random.ts'
import { failureModeOf, updateSteps } from '../../../src/device-agent/simulate/updates.ts'

const numbers = Array.from({ length: 20_000 }, (_, n) => n + 1)
const plan = { seed: 7, platforms: parsePlatforms('linux/x64=70%,windows/arm64=30%') }

describe('a fleet', () => {
  it('is the same for the same seed, and different for another seed', () => {
    const hosts = (seed: number) => numbers.slice(0, 50).map((n) => machineOf({ ...plan, seed }, n))
    expect(hosts(7)).toEqual(hosts(7))
    expect(hosts(8)).not.toEqual(hosts(7))
  })

  it('has the requested platforms, and a unique hostname per machine', () => {
    const machines = numbers.map((n) => machineOf(plan, n))
    const windows = machines.filter(({ osType }) => osType === 'windows')
    expect(windows.length / machines.length).toBeCloseTo(0.3, 1)
    expect(windows.every(({ architecture }) => architecture === 'arm64')).toBe(true)
    expect(new Set(machines.map(({ hostname }) => hostname)).size).toBe(machines.length)
    expect(machines[0]!.hostname).toBe('sim-00001')
  })

  it('reports nothing that the service would drop', () => {
    for (const n of [1, 2, 300, 65_537, 100_000]) {
      const inventory = inventoryOf(plan, n)
      expect(Inventory.parse(inventory)).toEqual(inventory)
      for (const beat of [0, 1, 17, 100_000]) {
        const metrics = metricsOf(plan.seed, n, beat)
        expect(Heartbeat.parse({ status: 'ok', agentVersion: '1', metrics }).metrics).toEqual(metrics)
      }
    }
  })

  it('has each failure mode in its requested share, at most one per agent', () => {
    const failures = parseFailures('crash=1%,silent=2%,slow=0.5%,wrong=3%,refuse=10%')
    const fates = numbers.map((n) => failureModeOf({ seed: 3, failures }, n))
    for (const mode of failureModes) {
      const share = fates.filter((fate) => fate === mode).length / fates.length
      expect(Math.abs(share - failures.get(mode)!)).toBeLessThan(0.006)
    }
    expect(numbers.map((n) => failureModeOf({ seed: 3, failures }, n))).toEqual(fates)
  })
})

it('the random numbers are uniformly distributed', () => {
  const all = numbers.map((n) => seededRandom(1, n, 'any'))
  expect(Math.min(...all)).toBeGreaterThanOrEqual(0)
  expect(Math.max(...all)).toBeLessThan(1)
  for (let tenth = 0; tenth < 10; tenth++) {
    const inside = all.filter((one) => Math.floor(one * 10) === tenth).length
    expect(inside / all.length).toBeCloseTo(0.1, 1)
  }
  expect(
    weightedPick(
      [
        { of: 'a', weight: 1 },
        { of: 'b', weight: 3 },
      ],
      0.999,
    ),
  ).toBe('b')
})

describe('an update', () => {
  const about = { from: '1.0.0', to: '1.1.0', updateMs: 1000 }
  it.each([
    [undefined, ['say updating', 'wait 1000', 'report 1.1.0']],
    ['slow', ['say updating', 'wait 20000', 'report 1.1.0']],
    ['wrong', ['say updating', 'wait 1000', 'report 1.1.0-wrong']],
    ['crash', ['say updating', 'wait 1000', 'say rolled_back', 'report 1.0.0']],
    ['silent', ['say updating', 'vanish']],
    ['refuse', ['say refused']],
  ] as const)('in the failure mode %s', (fate, expected) => {
    const steps = updateSteps(fate, about, 0.5).map((step) => {
      if (step.do === 'say') return `say ${step.state}`
      if (step.do === 'wait') return `wait ${step.ms}`
      return step.do === 'report' ? `report ${step.version}` : step.do
    })
    expect(steps).toEqual(expected)
  })

  it('to a wrong candidate still reports a valid version', () => {
    const steps = updateSteps('wrong', { ...about, to: '1.1.0-rc.1' }, 0)
    expect(steps.at(-1)).toEqual({ do: 'report', version: '1.1.0-rc.1.wrong' })
  })
})

describe('flags', () => {
  it.each([
    ['500ms', 500],
    ['20s', 20_000],
    ['1.5m', 90_000],
    ['2h', 7_200_000],
  ])('%s is a duration', (text, ms) => expect(parsePlanDuration(text, '--interval')).toBe(ms))

  it.each(['', '0s', '60', 'soon', '-1s', '1d', '200h'])(
    '%j is no duration: the error names the flag',
    (text) => {
      expect(() => parsePlanDuration(text, '--interval')).toThrow('--interval takes a time')
    },
  )

  it.each([
    ['crash', 'such as crash=1%'],
    ['crash=1', 'such as crash=1%'],
    ['crash=101%', 'such as crash=1%'],
    ['explode=1%', 'Unknown failure "explode"'],
    ['crash=60%,slow=60%', 'more than the whole fleet'],
  ])('%s is no failure rate', (text, words) => expect(() => parseFailures(text)).toThrow(words))

  it.each(['linux', 'beos/x64', 'linux/sparc', 'linux/x64=0%', ''])('%j is no platform', (text) => {
    expect(() => parsePlatforms(text)).toThrow('--platform')
  })
})
