import { describe, expect, it } from 'vitest'
import { hasNoOffer } from '../../../src/agents/upgrades/offer.ts'
import { isUpdateAllowed, targetVersionOf } from '../../../src/agents/upgrades/rules.ts'
import { parseWeeklyWindow } from '../../../src/core/weekly-window.ts'
import type { AgentTargetColumns } from '../../../src/storage/schema/agent-tables.ts'
import type { AgentDeviceRow } from '../../../src/storage/schema/tables.ts'

const nothing: AgentTargetColumns = {
  promoted_version: '1.0.0',
  promoted_at: '2026-01-01T00:00:00.000Z',
  promoted_rollback_at: null,
  rollout_id: null,
  rollout_version: null,
  rollout_status: null,
  rollout_wave: null,
  rollout_soak: null,
  rollout_device_wave: null,
  rollout_device_state: null,
  rollout_device_from: null,
  rollout_device_held: null,
  rollout_device_settled_at: null,
}
const rollout = (status: string, more: Partial<AgentTargetColumns> = {}): AgentTargetColumns => ({
  ...nothing,
  rollout_id: 'r',
  rollout_version: '2.0.0',
  rollout_status: status,
  rollout_wave: 1,
  rollout_soak: 10,
  rollout_device_wave: 1,
  rollout_device_state: 'waiting',
  rollout_device_from: '1.0.0',
  rollout_device_held: 0,
  ...more,
})
const later = { rollout_device_wave: 2 }
const held = { rollout_device_held: 1, rollout_device_from: '1.5.0' }

describe('the target version of a device', () => {
  it.each<[string, AgentTargetColumns, string, string | null]>([
    ['the promoted one', nothing, '0.9.0', '1.0.0'],
    ['none, where nothing is promoted', { ...nothing, promoted_version: null }, '0.9.0', null],
    ['the promoted one, in no rollout', rollout('running', { rollout_device_state: null }), '0.9.0', '1.0.0'],
    [
      'none, while a rollout is prepared',
      rollout('preparing', { rollout_device_state: null }),
      '0.9.0',
      null,
    ],
    ['that of the rollout, in the open wave', rollout('running'), '0.9.0', '2.0.0'],
    [
      'that of the rollout, in an earlier wave',
      rollout('running', { rollout_device_wave: 0 }),
      '0.9.0',
      '2.0.0',
    ],
    ['the promoted one, before its wave', rollout('running', later), '0.9.0', '1.0.0'],
    [
      'that of the rollout, once offered',
      rollout('running', { rollout_device_state: 'offered' }),
      '1.0.0',
      '2.0.0',
    ],
    [
      'the promoted one, after a failure',
      rollout('running', { rollout_device_state: 'failed' }),
      '1.0.0',
      '1.0.0',
    ],
    [
      'the promoted one, during a halt',
      rollout('halted', { rollout_device_state: 'offered' }),
      '1.0.0',
      '1.0.0',
    ],
    ...['running', 'halted', 'aborted', 'completed'].map(
      (status): [string, AgentTargetColumns, string, string] => [
        `that of the rollout it was updated to, ${status}`,
        rollout(status, { rollout_device_state: 'updated' }),
        '2.0.0',
        '2.0.0',
      ],
    ),
    [
      'that of the rollout, reached late',
      rollout('halted', { rollout_device_state: 'failed' }),
      '2.0.0',
      '2.0.0',
    ],
    ['not the one it went to by itself', rollout('running', later), '2.0.0', '1.0.0'],
    [
      'the promoted one, rolled back',
      rollout('rolled_back', { rollout_device_state: 'updated' }),
      '2.0.0',
      '1.0.0',
    ],
    [
      'the previous one, rolled back without a promoted one',
      rollout('rolled_back', {
        rollout_device_state: 'updated',
        promoted_version: null,
        rollout_device_from: '0.5.0',
      }),
      '2.0.0',
      '0.5.0',
    ],
    ['that of the earlier rollout it was in', rollout('running', { ...later, ...held }), '1.5.0', '1.5.0'],
    ['also that when this one is rolled back', rollout('rolled_back', held), '1.5.0', '1.5.0'],
    ['the promoted one, once it left that', rollout('running', { ...later, ...held }), '1.4.0', '1.0.0'],
    ['that of the rollout, in its wave', rollout('running', held), '1.5.0', '2.0.0'],
  ])('is %s', (_, row, reported, target) => {
    expect(targetVersionOf(row, reported)).toBe(target)
  })
})

describe('a heartbeat outside of the window of its device', () => {
  it('has nothing to hear, which its row says without a query', () => {
    const every = 'Sun 02:00'
    const row = {
      ...nothing,
      agent_version: '0.9.0',
      auto_update: 1,
      auto_update_acknowledged: 1,
      status: 'online',
      org_status: 'active',
      partner_status: 'active',
      maintenance_window: JSON.stringify({ every, durationMinutes: 60, timezone: 'UTC' }),
    } as AgentDeviceRow
    const said = { agentVersion: '0.9.0' }
    expect(hasNoOffer(row, said, '2026-03-01T01:59:00.000Z')).toBe(true)
    expect(hasNoOffer(row, said, '2026-03-01T02:00:00.000Z')).toBe(false)
    expect(hasNoOffer({ ...row, maintenance_window: null }, said, '2026-03-01T01:59:00.000Z')).toBe(false)
  })
})

describe('a weekly maintenance window', () => {
  it.each([
    ['Sun 02:00-04:00', '2026-03-01T01:59:59.999Z', false],
    ['Sun 02:00-04:00', '2026-03-01T02:00:00.000Z', true],
    ['Sun 02:00-04:00', '2026-03-01T03:59:59.999Z', true],
    ['Sun 02:00-04:00', '2026-03-01T04:00:00.000Z', false],
    ['Sun 02:00-04:00', '2026-03-02T03:00:00.000Z', false],
    // Across midnight, and across the end of the week.
    ['Sat 22:00-02:00', '2026-02-28T23:00:00.000Z', true],
    ['Sat 22:00-02:00', '2026-03-01T01:59:00.000Z', true],
    ['Sat 22:00-02:00', '2026-03-01T02:00:00.000Z', false],
    ['Sun 22:00-00:00', '2026-03-01T23:59:00.000Z', true],
    ['Sun 22:00-02:00', '2026-03-02T01:00:00.000Z', true],
    ['Sun 22:00-02:00', '2026-03-02T02:00:00.000Z', false],
    ['Mon 00:00-23:59', '2026-03-02T00:00:00.000Z', true],
  ])('%s at %s: %s', (maintenanceWindow, now, isOpen) => {
    expect(isUpdateAllowed({ defaults: { maintenanceWindow } }, { maintenance_window: null }, now)).toBe(
      isOpen,
    )
  })

  it.each([
    '',
    'Sun',
    'sun 02:00-04:00',
    'Sun 2:00-4:00',
    'Sun 02:00-24:00',
    'Sun 02:60-03:00',
    'Sun 02:00 - 04:00',
    'Sun 02:00-02:00',
    ' Sun 02:00-04:00',
  ])('cannot be written as "%s"', (text) => {
    expect(parseWeeklyWindow(text)).toBeUndefined()
  })
})
