import { hash } from 'node:crypto'
import { type Fault, invalid, Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { ConditionGroup } from '../../filters/contract.ts'
import type { NewRollout, NewWave, Rollout, RolloutDeviceState, RolloutStatus } from './contract.ts'

/** A wave as it is kept. The filter is kept as it was at the start: whoever changes it does not change a rollout. */
export type WaveRecord = {
  percent: number | null
  filter: { id: string; name: string; conditions: ConditionGroup } | null
  /** How many devices were drawn for it. */
  devices: number | null
}

/** A rollout as it is kept; waves count from 0. */
export type RolloutRecord = Omit<Rollout, 'waves' | 'wave'> & {
  waves: WaveRecord[]
  wave: number
  acceptedFailures: number
}

/** Those that have not come to their end: there is one at a time. */
export const activeStatuses: readonly RolloutStatus[] = ['preparing', 'running', 'halted']

export const isActive = ({ status }: Pick<RolloutRecord, 'status'>): boolean =>
  activeStatuses.includes(status)

/** @throws invalid_request naming each wave that cannot come after those before it */
export function checkWaves(waves: readonly NewWave[]): void {
  const faults: Fault[] = []
  let reached = 0
  for (const [n, { percent }] of waves.entries()) {
    const wave = `wave ${n + 1}`
    if (reached === 100) {
      faults.push({ path: `body.waves.${n}`, message: `${wave} comes after all devices` })
    } else if (percent !== undefined && percent <= reached) {
      const message = `${wave} must be more than ${reached} %: a percentage counts the waves before`
      faults.push({ path: `body.waves.${n}.percent`, message })
    }
    reached = Math.max(reached, percent ?? 0)
  }
  if (faults.length > 0) throw invalid(faults)
}

export function makeRollout(
  wanted: NewRollout,
  filters: ReadonlyMap<string, NonNullable<WaveRecord['filter']>>,
  { id, by, now }: { id: string; by: string; now: Instant },
): RolloutRecord {
  const { version, gateMinutes, soakMinutes, maxFailurePercent } = wanted
  const waves = wanted.waves.map(
    ({ percent = null, filterId }): WaveRecord => ({
      percent,
      filter: filterId === undefined ? null : filters.get(filterId)!,
      devices: null,
    }),
  )
  return {
    ...{ id, version, status: 'preparing', waves, wave: 0, waveBeganAt: null },
    ...{ gateMinutes, soakMinutes, maxFailurePercent, haltReason: null, acceptedFailures: 0 },
    ...{ isCurrent: true, createdBy: by, createdAt: now, updatedAt: now, endedAt: null },
  }
}

/** As the API shows it. */
export function toRollout({ acceptedFailures: _, waves, wave, ...rollout }: RolloutRecord): Rollout {
  return {
    ...rollout,
    waves: waves.map(({ percent, filter, devices }) => ({
      ...{ percent, devices },
      ...{ filterId: filter?.id ?? null, filterName: filter?.name ?? null },
    })),
    wave: rollout.waveBeganAt === null ? null : wave + 1,
  }
}

/** Where a device stands among all of a rollout: at random, and the same whoever asks. */
export const shuffleKey = (rolloutId: string, deviceId: string): string =>
  hash('sha256', `${rolloutId} ${deviceId}`, 'hex')

/**
 * The wave of each device, in the order of their lots; -1 for those that are left out. A percentage is of all of them and
 * counts those of the waves before; the first wave has at least one device. A filter's wave takes what it found and what
 * is left of it.
 */
export function assignWaves(
  waves: readonly WaveRecord[],
  total: number,
  isFound: (wave: number, at: number) => boolean,
): Int16Array {
  const waveOf = new Int16Array(total).fill(-1)
  let count = 0
  // Devices before it were all given a wave.
  let next = 0
  for (const [n, { percent }] of waves.entries()) {
    const take = (at: number) => {
      waveOf[at] = n
      count += 1
    }
    if (percent === null) {
      for (let at = 0; at < total; at++) if (waveOf[at] === -1 && isFound(n, at)) take(at)
      continue
    }
    const share = Math.floor((total * percent) / 100 + 1e-9)
    const wanted = Math.max(share, n === 0 ? 1 : 0)
    for (; next < total && count < wanted; next++) if (waveOf[next] === -1) take(next)
  }
  return waveOf
}

/** How many of the open wave may fail. */
export function allowedFailures({ waves, wave, maxFailurePercent }: RolloutRecord): number {
  return Math.floor(((waves[wave]?.devices ?? 0) * maxFailurePercent) / 100)
}

/** The wave that is opened after this one; undefined when it was the last one that has devices. */
export function nextWave({ waves }: Pick<RolloutRecord, 'waves'>, wave: number): number | undefined {
  const next = waves.findIndex(({ devices }, n) => n > wave && (devices ?? 0) > 0)
  return next === -1 ? undefined : next
}

/** Whether its completion is a promotion: it has come to all devices. */
export const coversAllDevices = ({ waves }: Pick<RolloutRecord, 'waves'>): boolean =>
  waves.some(({ percent }) => percent === 100)

/** Why too many have failed, in one line. */
export function haltReasonOf(
  rollout: RolloutRecord,
  failed: number,
  mostFrequent: string | undefined,
): string {
  const { wave, waves, maxFailurePercent } = rollout
  const [size, allowed] = [waves[wave]?.devices ?? 0, allowedFailures(rollout)]
  const figures = `${failed} failed in wave ${wave + 1} of ${size}, where ${maxFailurePercent} % (${allowed}) may`
  return mostFrequent === undefined ? figures : `${figures}: ${mostFrequent}`
}

export type OverdueDevice = {
  status: string
  agentVersion: string
  fromVersion: string
  lastSeenAt: Instant | null
  offeredAt: Instant
  isWanted: boolean
}

/** What becomes of a device whose gate has passed. People who took it out have not made it fail. */
export function overdueOutcome(
  device: OverdueDevice,
  { gateMinutes, version }: RolloutRecord,
): { to: RolloutDeviceState; reason: string } {
  const { status, agentVersion, fromVersion, lastSeenAt, offeredAt, isWanted } = device
  const out = outOfUseReason(status)
  if (out !== undefined) return { to: 'withdrawn', reason: out }
  if (!isWanted) return { to: 'withdrawn', reason: 'Auto-update was switched off' }
  if (lastSeenAt === null || lastSeenAt <= offeredAt) {
    return { to: 'failed', reason: 'Not heard of since it was offered' }
  }
  const reason =
    agentVersion === fromVersion
      ? `Still on ${agentVersion} ${gateMinutes} minutes after it was offered`
      : `Reports ${agentVersion} instead of ${version}`
  return { to: 'failed', reason }
}

/** Why a device takes no part any more; undefined where it does. */
export const outOfUseReason = (status: string): string | undefined =>
  status === 'decommissioned' || status === 'quarantined' ? `The device was ${status}` : undefined

const allowedStatuses: { [verb in 'halt' | 'resume' | 'abort' | 'rollBack']: readonly RolloutStatus[] } = {
  halt: ['running'],
  resume: ['halted'],
  abort: activeStatuses,
  rollBack: ['running', 'halted', 'aborted', 'completed'],
}

/** @throws conflict unless a rollout can be treated so now */
export function checkTransition(rollout: RolloutRecord, verb: keyof typeof allowedStatuses): void {
  const { status, version, isCurrent } = rollout
  const words = { halt: 'halted', resume: 'resumed', abort: 'aborted', rollBack: 'rolled back' }
  if (!allowedStatuses[verb].includes(status)) {
    throw new Problem('conflict', `A rollout that is ${status.replace('_', ' ')} cannot be ${words[verb]}`)
  }
  if (isCurrent) return
  throw new Problem(
    'conflict',
    `The rollout of ${version} decides nothing any more, since there was a promotion or another rollout: promote the version that is to run`,
  )
}
