import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { assignWaves, rolloutOrderKey, type WaveRecord } from '../../../src/agents/rollouts/rules.ts'

const wave = (percent: number | null): WaveRecord => ({
  percent,
  devices: null,
  filter: percent === null ? { id: 'f', name: 'F', conditions: { operator: 'AND', conditions: [] } } : null,
})

/** Increasing percentages, with filters between them. */
const waves = fc
  .tuple(
    fc.uniqueArray(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 5 }),
    fc.array(fc.nat(5), { maxLength: 3 }),
  )
  .map(([percents, places]) => {
    const all: (number | null)[] = percents.toSorted((a, b) => a - b)
    for (const at of places) all.splice(at, 0, null)
    return all.map(wave)
  })

describe('the assignment of devices to waves', () => {
  it('gives each device at most one wave, and each wave its percentage', () => {
    fc.assert(
      fc.property(waves, fc.nat(500), fc.integer({ min: 1, max: 9 }), (asked, total, every) => {
        const isFound = (n: number, at: number) => (at + n) % every === 0
        const waveOf = assignWaves(asked, total, isFound)
        let before = 0
        for (const [n, { percent }] of asked.entries()) {
          const inWave = [...waveOf.keys()].filter((at) => waveOf[at] === n)
          if (percent === null) expect(inWave.every((at) => isFound(n, at))).toBe(true)
          else {
            const share = Math.floor((total * percent) / 100 + 1e-9)
            const min = n === 0 && total > 0 ? Math.max(1, share) : share
            expect(before + inWave.length).toBe(Math.max(before, min))
          }
          before += inWave.length
        }
        const left = waveOf.filter((one) => one === -1).length
        expect(before + left).toBe(total)
        if (asked.some(({ percent }) => percent === 100)) expect(left).toBe(0)
      }),
    )
  })

  it('leaves nothing to a filter whose devices an earlier wave has taken', () => {
    expect([...assignWaves([wave(50), wave(null), wave(100)], 4, (_, at) => at < 3)]).toEqual([0, 0, 1, 2])
  })

  it('has another order for another rollout, and the same for the same', () => {
    const ids = Array.from({ length: 50 }, (_, n) => `device-${n}`)
    const order = (rollout: string) =>
      ids.toSorted((a, b) => (rolloutOrderKey(rollout, a) < rolloutOrderKey(rollout, b) ? -1 : 1))
    expect(order('a')).toEqual(order('a'))
    expect(order('a')).not.toEqual(order('b'))
  })
})
