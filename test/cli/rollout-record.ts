import type { RolloutProgress } from '../../src/agents/rollouts/contract.ts'
import { uuid } from './fake-service.ts'

const id = uuid(90)
const wave = { percent: null, filterId: null, filterName: null, devices: null }
const none = { waiting: 0, offered: 0, soaking: 0, updated: 0, failed: 0, withdrawn: 0, onVersion: 0 }
export const rollout = {
  id,
  version: '1.2.0',
  status: 'running',
  wave: 2,
  waveBeganAt: '2026-01-31T12:31:04.000Z',
  waves: [
    { ...wave, percent: 1, devices: 100 },
    { ...wave, filterId: uuid(5), filterName: 'Pilots', devices: 900 },
    { ...wave, percent: 100, devices: 9000 },
  ],
  gateMinutes: 15,
  soakMinutes: 10,
  maxFailurePercent: 5,
  haltReason: null,
  isCurrent: true,
  createdBy: uuid(1),
  createdAt: '2026-01-31T12:00:00.000Z',
  updatedAt: '2026-01-31T12:31:04.000Z',
  endedAt: null,
}
/** The same, as it is shown. */
export const progress = {
  ...rollout,
  waves: [
    { ...rollout.waves[0], ...none, updated: 100, onVersion: 100 },
    {
      ...rollout.waves[1],
      ...none,
      updated: 161,
      soaking: 200,
      offered: 120,
      waiting: 417,
      failed: 2,
      onVersion: 361,
    },
    { ...rollout.waves[2], ...none, waiting: 9000 },
  ],
  failures: { counted: 2, allowed: 45, reasons: [{ reason: 'Rolled back: exit 1', devices: 2 }] },
  awaitingWindow: { devices: 0, nextOpensAt: null },
  next: {
    step: 'open_wave',
    wave: 3,
    at: '2026-01-31T12:46:04.000Z',
    because: 'waits for 120 devices that were offered it',
  },
} as RolloutProgress
