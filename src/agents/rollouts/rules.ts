import { hash } from 'node:crypto'
import { type Fault, invalid, Problem } from '../../core/errors.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { WeeklyWindow } from '../../core/weekly-window.ts'
import { isOpenThroughout } from '../../devices/windows/rules.ts'
import type { ConditionGroup } from '../../filters/contract.ts'
import type { NewRollout, NewWave, Rollout, RolloutDeviceState, RolloutStatus } from './contract.ts'

/**
 * A wave as stored. It contains a copy of the filter from the start: later changes of the filter do not affect the
 * rollout.
 */
export type WaveRecord = {
  percent: number | null
  filter: { id: string; name: string; conditions: ConditionGroup } | null
  /** Number of devices assigned to it. */
  devices: number | null
}

/** A rollout as stored; waves count from 0. */
export type RolloutRecord = Omit<Rollout, 'waves' | 'wave'> & {
  waves: WaveRecord[]
  wave: number
  acceptedFailures: number
}

/** The statuses of a rollout that has not ended: at most one rollout has one of them. */
export const activeStatuses: readonly RolloutStatus[] = ['preparing', 'running', 'halted']

export const isActive = ({ status }: Pick<RolloutRecord, 'status'>): boolean =>
  activeStatuses.includes(status)

/** @throws invalid_request naming each wave that cannot follow the waves before it */
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
    id,
    version,
    status: 'preparing',
    waves,
    wave: 0,
    waveBeganAt: null,
    gateMinutes,
    soakMinutes,
    maxFailurePercent,
    haltReason: null,
    acceptedFailures: 0,
    isCurrent: true,
    createdBy: by,
    createdAt: now,
    updatedAt: now,
    endedAt: null,
  }
}

/** The rollout in the form of the API. */
export function toRollout({ acceptedFailures: _, waves, wave, ...rollout }: RolloutRecord): Rollout {
  return {
    ...rollout,
    waves: waves.map(({ percent, filter, devices }) => ({
      percent,
      devices,
      filterId: filter?.id ?? null,
      filterName: filter?.name ?? null,
    })),
    wave: rollout.waveBeganAt === null ? null : wave + 1,
  }
}

/** Sort key that puts the devices of a rollout into a random order, the same in every process. */
export const rolloutOrderKey = (rolloutId: string, deviceId: string): string =>
  hash('sha256', `${rolloutId} ${deviceId}`, 'hex')

/**
 * The wave of each device, in shuffled order; -1 for devices left out. A percentage is of all devices and includes
 * those of earlier waves; a first wave with a percentage has at least one device. A wave with a filter takes the
 * matching devices that are left.
 */
export function assignWaves(
  waves: readonly WaveRecord[],
  total: number,
  isFound: (wave: number, at: number) => boolean,
): Int16Array {
  const waveOf = new Int16Array(total).fill(-1)
  let count = 0
  // All devices before this index are assigned.
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

/** Number of failures allowed in the open wave. */
export function allowedFailures({ waves, wave, maxFailurePercent }: RolloutRecord): number {
  return Math.floor(((waves[wave]?.devices ?? 0) * maxFailurePercent) / 100)
}

/** The next wave that has devices; undefined when there is none. */
export function nextWave({ waves }: Pick<RolloutRecord, 'waves'>, wave: number): number | undefined {
  const next = waves.findIndex(({ devices }, n) => n > wave && (devices ?? 0) > 0)
  return next === -1 ? undefined : next
}

/** Whether completing the rollout promotes the version: it covered all devices. */
export const coversAllDevices = ({ waves }: Pick<RolloutRecord, 'waves'>): boolean =>
  waves.some(({ percent }) => percent === 100)

/** The reason of a halt, on one line. */
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
  /** Its last report about an update. */
  updateSince: Instant | null
  /** Why an earlier offer was taken back. */
  reason: string | null
  /** The window in which it is offered versions. */
  window: WeeklyWindow | null
}

/** The outcome of a device that missed its gate. A device that users took out has not failed. */
export function overdueOutcome(
  device: OverdueDevice,
  { gateMinutes, version }: RolloutRecord,
): { to: RolloutDeviceState; reason: string } {
  const { status, agentVersion, fromVersion, lastSeenAt, offeredAt, isWanted, window } = device
  const out = outOfUseReason(status)
  if (out !== undefined) return { to: 'withdrawn', reason: out }
  if (!isWanted) return { to: 'withdrawn', reason: 'Auto-update was switched off' }
  if (lastSeenAt === null || lastSeenAt <= offeredAt) {
    return { to: 'failed', reason: 'Not seen since it was offered the version' }
  }
  const gate = addSeconds(offeredAt, gateMinutes * 60)
  const hasBegun = device.updateSince !== null && device.updateSince >= offeredAt
  // Once: a device that has not begun in two windows does not update.
  const mayReturn = agentVersion === fromVersion && !hasBegun && device.reason === null
  if (mayReturn && window !== null && !isOpenThroughout(window, offeredAt, gate)) {
    return { to: 'waiting', reason: 'Its maintenance window closed before it began to update' }
  }
  const reason =
    agentVersion === fromVersion
      ? `Still on ${agentVersion} ${gateMinutes} minutes after it was offered the version`
      : `Reports ${agentVersion} instead of ${version}`
  return { to: 'failed', reason }
}

/** Why a device no longer takes part; undefined if it does. */
export const outOfUseReason = (status: string): string | undefined =>
  status === 'decommissioned' || status === 'quarantined' ? `The device was ${status}` : undefined

const allowedStatuses: { [verb in 'halt' | 'resume' | 'abort' | 'rollBack']: readonly RolloutStatus[] } = {
  halt: ['running'],
  resume: ['halted'],
  abort: activeStatuses,
  rollBack: ['running', 'halted', 'aborted', 'completed'],
}

/** @throws conflict when the rollout does not allow the action now */
export function checkTransition(rollout: RolloutRecord, verb: keyof typeof allowedStatuses): void {
  const { status, version, isCurrent } = rollout
  const words = { halt: 'halted', resume: 'resumed', abort: 'aborted', rollBack: 'rolled back' }
  if (!allowedStatuses[verb].includes(status)) {
    throw new Problem('conflict', `A rollout that is ${status.replace('_', ' ')} cannot be ${words[verb]}`)
  }
  if (isCurrent) return
  throw new Problem(
    'conflict',
    `The rollout of ${version} has no effect any more, after a promotion or another rollout: promote the version that agents should run`,
  )
}
