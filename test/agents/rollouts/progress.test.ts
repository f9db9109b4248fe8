import { describe, expect, it } from 'vitest'
import { blockersOf, noEligibleDevices, waveProgressOf } from '../../../src/agents/rollouts/progress.ts'
import type { RolloutRecord } from '../../../src/agents/rollouts/rules.ts'

describe('the blockers of a rollout', () => {
  const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 12, minute)).toISOString()
  const rollout = {
    gateMinutes: 15,
    soakMinutes: 10,
    wave: 1,
    waveBeganAt: at(0),
    waves: [],
  } as unknown as RolloutRecord
  const none = { offeredAt: null, settledAt: null }
  const blockersAt = (tally: Parameters<typeof waveProgressOf>[1], eligible: number, minute: number) =>
    blockersOf(rollout, waveProgressOf(rollout, tally, { ...noEligibleDevices, eligible }), at(minute))

  it('are devices of the open waves, earlier ones included, but of no later one', () => {
    expect(
      blockersAt(
        [
          { wave: 0, state: 'offered', devices: 1, ...none, offeredAt: at(3) },
          { wave: 1, state: 'soaking', devices: 2, ...none, settledAt: at(4) },
          { wave: 1, state: 'updated', devices: 2, ...none },
          { wave: 2, state: 'soaking', devices: 9, ...none, settledAt: at(9) },
        ],
        3,
        5,
      ),
    ).toEqual([
      { at: at(18), because: '1 device that was offered it' },
      { at: at(14), because: '2 devices to stay alive' },
      { at: at(15), because: '3 devices online to ask' },
    ])
  })

  it('are no online devices that have not asked, once the gate has passed', () => {
    const updated = [{ wave: 1, state: 'updated' as const, devices: 2, ...none }]
    expect(blockersAt(updated, 3, 14)).toHaveLength(1)
    expect(blockersAt(updated, 3, 15)).toEqual([])
  })

  it('are a first device of the open wave, whatever the earlier waves have shown', () => {
    const earlier = [{ wave: 0, state: 'updated' as const, devices: 2, ...none }]
    expect(blockersAt(earlier, 0, 99)).toEqual([
      { at: null, because: 'a first device of the wave on the version' },
    ])
  })

  it('are the windows of devices at the end of a rollout that does not promote, for eight days', () => {
    const updated = [{ wave: 1, state: 'updated' as const, devices: 2, ...none }]
    const held = { ...noEligibleDevices, held: 2, firstOpensAt: at(30), lastOpensAt: at(90) }
    const justOpened = { ...noEligibleDevices, eligible: 1, lastOpenedAt: at(60) }
    const at100 = { waves: [{ percent: 100, filter: null, devices: 2 }] }
    const week = 7 * 24 * 60
    const blockers = (
      eligible: typeof noEligibleDevices,
      minute: number,
      more: Partial<RolloutRecord> = {},
    ) => blockersOf({ ...rollout, ...more }, waveProgressOf(rollout, updated, eligible), at(minute))
    expect(blockers(held, 20)).toEqual([
      { at: at(90), because: '2 devices outside of their maintenance windows' },
    ])
    expect(blockers(justOpened, 61)).toEqual([{ at: at(75), because: '1 device online to ask' }])
    expect(blockers(justOpened, 75)).toEqual([])
    expect(blockers(held, 20, at100)).toEqual([])
    expect(blockers(justOpened, 61, at100)).toEqual([])
    expect(blockers(held, week)).toHaveLength(1)
    expect(blockers({ ...held, lastOpensAt: at(9 * 1440) }, 8 * 1440)).toEqual([])
  })
})
