import { addSeconds, type Instant } from '../../core/time.ts'
import type { RolloutDeviceState, RolloutProgress } from './contract.ts'
import { allowedFailures, coversAllDevices, nextWave, type RolloutRecord, toRollout } from './rules.ts'

/* Progress of a rollout, computed from counts of its devices: what blocks the next wave, and what comes next. */

/** Number of devices of a wave in a state, and when the last of them was offered the version and settled. */
export type Tally = {
  wave: number
  state: RolloutDeviceState
  devices: number
  offeredAt: Instant | null
  settledAt: Instant | null
}

/** What the open waves are waiting for: `updated` and `left` of the last of them, the others of all. */
export type WaveProgress = {
  /** In the open wave. */
  updated: number
  /** In the open wave: waiting, offered or soaking. */
  left: number
  offered: number
  /** When the last of the offered devices was offered the version. */
  offeredAt: Instant | null
  soaking: number
  /** When the last of the soaking devices reported the version. */
  settledAt: Instant | null
} & EligibleDevices

/** Devices of the open waves that are online, take updates and were not offered the version yet. */
export type EligibleDevices = {
  /** Offered it with their next heartbeat. */
  eligible: number
  /** When the last window of those opened; null: they have none. */
  lastOpenedAt: Instant | null
  /** Outside of their maintenance windows. */
  held: number
  /** When the first and the last of those windows opens; null: none will. */
  firstOpensAt: Instant | null
  lastOpensAt: Instant | null
}

export const noEligibleDevices: EligibleDevices = {
  eligible: 0,
  lastOpenedAt: null,
  held: 0,
  firstOpensAt: null,
  lastOpensAt: null,
}

export function waveProgressOf(
  { wave }: RolloutRecord,
  tally: readonly Tally[],
  eligible: EligibleDevices,
): WaveProgress {
  const of = (state: RolloutDeviceState) => tally.filter((one) => one.state === state && one.wave <= wave)
  const sum = (some: Tally[]) => some.reduce((all, { devices }) => all + devices, 0)
  const inWave = (state: RolloutDeviceState) => sum(of(state).filter((one) => one.wave === wave))
  const last = (times: (Instant | null)[]) => times.reduce(laterOf, null)
  return {
    updated: inWave('updated'),
    left: inWave('waiting') + inWave('offered') + inWave('soaking'),
    offered: sum(of('offered')),
    offeredAt: last(of('offered').map(({ offeredAt }) => offeredAt)),
    soaking: sum(of('soaking')),
    settledAt: last(of('soaking').map(({ settledAt }) => settledAt)),
    ...eligible,
  }
}

export const laterOf = (a: Instant | null, b: Instant | null): Instant | null =>
  a === null || (b !== null && b > a) ? b : a

type Blocker = { at: Instant | null; because: string }

/** What blocks the next wave; empty when it can open. */
export function blockersOf(rollout: RolloutRecord, facts: WaveProgress, now: Instant): Blocker[] {
  const { gateMinutes, soakMinutes, waveBeganAt } = rollout
  const { offered, offeredAt, soaking, settledAt, eligible } = facts
  const waits: Blocker[] = []
  if (offered > 0) {
    const at = offeredAt && addSeconds(offeredAt, gateMinutes * 60)
    waits.push({ at, because: `${devices(offered)} that ${offered === 1 ? 'was' : 'were'} offered it` })
  }
  if (soaking > 0) {
    const at = settledAt && addSeconds(settledAt, soakMinutes * 60)
    waits.push({ at, because: `${devices(soaking)} to stay alive` })
  }
  const isPatient = waitsForWindows(rollout, now)
  const asked = isPatient ? laterOf(waveBeganAt, facts.lastOpenedAt) : waveBeganAt
  const gate = asked && addSeconds(asked, gateMinutes * 60)
  if (eligible > 0 && gate !== null && now < gate) {
    waits.push({ at: gate, because: `${devices(eligible)} online to ask` })
  }
  if (isPatient && facts.lastOpensAt !== null) {
    waits.push({
      at: facts.lastOpensAt,
      because: `${devices(facts.held)} outside of ${facts.held === 1 ? 'its maintenance window' : 'their maintenance windows'}`,
    })
  }
  if (facts.updated + soaking === 0) {
    waits.push({ at: null, because: 'a first device of the wave on the version' })
  }
  return waits
}

/** Every window opens within a week, of which summer time makes an hour more. */
const patienceSeconds = 8 * 86_400

/**
 * Whether devices outside of their windows are waited for: with the end of a rollout that does not promote its version
 * they would not get it. For a limited time: some are never offered it, such as those of a suspended organization.
 */
const waitsForWindows = (rollout: RolloutRecord, now: Instant): boolean =>
  nextWave(rollout, rollout.wave) === undefined &&
  !coversAllDevices(rollout) &&
  rollout.waveBeganAt !== null &&
  now < addSeconds(rollout.waveBeganAt, patienceSeconds)

/** Whether no device of the wave is left that could show that the version works. */
export const isExhausted = ({ updated, left }: WaveProgress): boolean => updated === 0 && left === 0

const devices = (count: number): string => (count === 1 ? '1 device' : `${count} devices`)

/** The progress in the form of the API. */
export function toRolloutProgress(
  rollout: RolloutRecord,
  { tally, onVersion, eligible, reasons, now }: ProgressInput,
): RolloutProgress {
  const summary = toRollout(rollout)
  const of = (wave: number, state: RolloutDeviceState) =>
    tally.find((one) => one.wave === wave && one.state === state)?.devices ?? 0
  const failed = tally.reduce((sum, one) => sum + (one.state === 'failed' ? one.devices : 0), 0)
  const onVersionCount = [...onVersion.values()].reduce((sum, one) => sum + one, 0)
  const isOpen = rollout.waveBeganAt !== null
  return {
    ...summary,
    waves: summary.waves.map((wave, n) => ({
      ...wave,
      waiting: of(n, 'waiting'),
      offered: of(n, 'offered'),
      soaking: of(n, 'soaking'),
      updated: of(n, 'updated'),
      failed: of(n, 'failed'),
      withdrawn: of(n, 'withdrawn'),
      onVersion: onVersion.get(n) ?? 0,
    })),
    failures: {
      counted: failed - rollout.acceptedFailures,
      allowed: isOpen ? allowedFailures(rollout) : null,
      reasons,
    },
    awaitingWindow:
      rollout.status === 'running'
        ? { devices: eligible.held, nextOpensAt: eligible.firstOpensAt }
        : { devices: 0, nextOpensAt: null },
    next: nextOf(rollout, isOpen ? waveProgressOf(rollout, tally, eligible) : undefined, onVersionCount, now),
  }
}

/** Counts of the devices of a rollout. */
export type ProgressInput = {
  tally: Tally[]
  onVersion: ReadonlyMap<number, number>
  eligible: EligibleDevices
  reasons: { reason: string; devices: number }[]
  now: Instant
}

/** The next step, for users. */
function nextOf(
  rollout: RolloutRecord,
  facts: WaveProgress | undefined,
  onVersion: number,
  now: Instant,
): RolloutProgress['next'] {
  const { status, wave } = rollout
  const step = (name: NonNullable<RolloutProgress['next']>['step'], because: string) => ({
    step: name,
    wave: null,
    at: null,
    because,
  })
  if (status === 'preparing') return step('draw', 'its devices are being drawn')
  if (status === 'halted') return step('decide', 'it was halted: resume, abort or roll back')
  if (status === 'rolled_back' && onVersion > 0)
    return step('return', `${devices(onVersion)} on the version to come back`)
  if (status !== 'running' || !facts) return null
  const waits = blockersOf(rollout, facts, now)
  const next = nextWave(rollout, wave)
  const at = waits.some((one) => one.at === null)
    ? null
    : [now, ...waits.map((one) => one.at!)].sort().at(-1)!
  const because =
    waits.length === 0 ? 'it is time' : `waits for ${waits.map((one) => one.because).join(', ')}`
  const moves = { wave: next === undefined ? null : next + 1, at, because }
  return { step: next === undefined ? 'complete' : 'open_wave', ...moves }
}
