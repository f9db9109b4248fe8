import type { Overview } from '../../src/overview/contract.ts'
import { uuid } from './fake-service.ts'

const counts = { waiting: 0, offered: 0, soaking: 0, updated: 0, failed: 0, withdrawn: 0, onVersion: 0 }
const wave = { percent: 10, filterId: null, filterName: null, devices: 9000, ...counts }
const rollout = {
  id: uuid(90),
  version: '1.2.0',
  status: 'running',
  wave: 2,
  waveBeganAt: '2026-01-31T11:31:04.000Z',
  waves: [
    { ...wave, percent: 1, devices: 100, updated: 100 },
    { ...wave, devices: 900, updated: 161, soaking: 200, offered: 120, waiting: 417, failed: 2 },
    { ...wave, percent: 50, waiting: 9000 },
    { ...wave, percent: 100, waiting: 9000 },
  ],
  gateMinutes: 15,
  soakMinutes: 10,
  maxFailurePercent: 5,
  haltReason: null,
  isCurrent: true,
  createdBy: uuid(1),
  createdAt: '2026-01-31T11:00:00.000Z',
  updatedAt: '2026-01-31T11:31:04.000Z',
  endedAt: null,
  failures: { counted: 2, allowed: 45, reasons: [] },
  next: null,
}
/** Of a fleet in the middle of a rollout. */
export const overview = {
  time: '2026-01-31T12:00:05.000Z',
  scope: 'system',
  devices: {
    total: 1234,
    byStatus: {
      online: 1180,
      offline: 40,
      updating: 12,
      maintenance: 2,
      quarantined: 0,
      pending: 0,
      decommissioned: 4,
    },
    heartbeatsPerSecond: 19.67,
  },
  alerts: { active: 6, acknowledged: 1, bySeverity: { critical: 1, high: 2, medium: 4, low: 0, info: 0 } },
  webhooks: { byStatus: { active: 12, paused: 1, failed: 1 }, succeeded: 500, failed: 20, waiting: 34 },
  rollout,
  audit: {
    chains: 3,
    entries: 12_345,
    head: { seq: 4711, checksum: '5f3c0a9be1d2aaaa' },
    verdicts: { sound: 3, tampered: 0, unverifiable: 0, pending: 0 },
    verifiedAt: '2026-01-31T10:00:00.000Z',
  },
  leftOut: [],
} as unknown as Overview
