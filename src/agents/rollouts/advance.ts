import { addSeconds, type Clock, type Instant } from '../../core/time.ts'
import { writeLeavingLocked } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { RolloutDeviceState } from './contract.ts'
import {
  findInMaintenance,
  findNotUpdated,
  findOutOfUse,
  findSilent,
  isWaveDone,
  returnToWaiting,
  settleDevice,
  tallyByWave,
} from './devices.ts'
import { blockersOf, isExhausted, waveProgressOf } from './progress.ts'
import { outOfUseReason, overdueOutcome, type RolloutRecord } from './rules.ts'
import { getRollout, lockRollout } from './store.ts'
import { autoHalt, completeRollout, haltIfDue, openNextWave } from './transitions.ts'
import { effectiveWindow, listOrgWindows, readEligibleDevices } from './windows.ts'

type On = { storage: Storage; clock: Clock; offlineAfterSeconds: number }

/** Devices read at a time, and devices of one write: the write bounds how long heartbeats wait. */
const readLimit = 5000
const writeLimit = 500

type DueDevice = { id: string; from: readonly RolloutDeviceState[]; to: RolloutDeviceState; reason: string }

/**
 * Advances a rollout as far as possible now: settles devices that are late, silent or out of use, halts after too
 * many failures, and opens the next wave when nothing is pending. Several processes may do so concurrently: each
 * change locks the rollout and checks it again.
 */
export async function advanceRollout(on: On, rollout: RolloutRecord): Promise<void> {
  const failure = await settleDueDevices(on, rollout)
  await openNextIfDue(on, rollout)
  if (failure !== undefined) throw failure
}

async function openNextIfDue({ storage, clock }: On, rollout: RolloutRecord): Promise<void> {
  const now = clock()
  const known = await getRollout(storage.read, rollout.id)
  if (known.status !== 'running') return
  const facts = waveProgressOf(
    known,
    await tallyByWave(storage.heavy, known.id),
    await readEligibleDevices(storage.heavy, known, now),
  )
  if (isExhausted(facts)) return storage.write((tx) => haltExhausted(tx, known, now))
  if (blockersOf(known, facts, now).length > 0) return
  await storage.write((tx) => openNextOrComplete(tx, known, now))
}

/**
 * Settles devices whose time has passed or that users took out. Returns the error of devices that could not be
 * settled: they are tried again, and do not block the others.
 */
async function settleDueDevices(
  { storage, clock, offlineAfterSeconds }: On,
  rollout: RolloutRecord,
): Promise<unknown> {
  const { heavy } = storage
  const { gateMinutes, soakMinutes } = rollout
  let failure: unknown
  for (;;) {
    const now = clock()
    const ago = (seconds: number) => addSeconds(now, -seconds)
    const out = await findOutOfUse(heavy, rollout, readLimit)
    const late = await findNotUpdated(heavy, rollout, ago(gateMinutes * 60), readLimit)
    const ofOrgs = late.length > 0 ? await listOrgWindows(heavy) : new Map()
    const silent = await findSilent(heavy, rollout, ago(offlineAfterSeconds), readLimit)
    const resting = await findInMaintenance(heavy, rollout, ago(soakMinutes * 60), readLimit)
    const died = { to: 'failed' as const, reason: `Silent within ${soakMinutes} minutes of its update` }
    const over: DueDevice[] = [
      ...out.map(({ id, status }) => ({
        id,
        from: ['waiting', 'offered', 'soaking'] as const,
        to: 'withdrawn' as const,
        reason: outOfUseReason(status) ?? 'Its organization was deleted',
      })),
      ...late.map((device) => ({
        id: device.id,
        from: ['offered'] as const,
        ...overdueOutcome({ ...device, window: effectiveWindow(device, ofOrgs) }, rollout),
      })),
      ...silent.map(({ id }) => ({ id, from: ['soaking'] as const, ...died })),
      ...resting.map(({ id }) => ({
        id,
        from: ['soaking'] as const,
        to: 'updated' as const,
        reason: 'In maintenance while it soaked',
      })),
    ]
    for (let at = 0; at < over.length; at += writeLimit) {
      const part = over.slice(at, at + writeLimit)
      const settle = (tx: Db, some: readonly DueDevice[]) => settleBatch(tx, rollout.id, some, now)
      const { done, refused } = await writeLeavingLocked(storage, part, settle)
      failure ??= refused[0]?.error
      if (done.includes(false)) return failure
    }
    if (over.length < readLimit || failure !== undefined) return failure
  }
}

/** false when the rollout is no longer running or halted. */
async function settleBatch(tx: Db, id: string, over: readonly DueDevice[], now: Instant): Promise<boolean> {
  const rollout = await lockRollout(tx, id)
  if (rollout.status !== 'running' && rollout.status !== 'halted') return false
  for (const { id: deviceId, from, to, reason } of over) {
    if (to === 'waiting') await returnToWaiting(tx, id, deviceId, reason)
    else await settleDevice(tx, id, deviceId, from, { to, reason, now })
  }
  await haltIfDue(tx, rollout, now)
  return true
}

/** No device of the wave could show that the version works: a user has to decide. */
async function haltExhausted(tx: Db, known: RolloutRecord, now: Instant): Promise<void> {
  const rollout = await lockRollout(tx, known.id)
  if (rollout.status !== 'running' || rollout.wave !== known.wave) return
  await autoHalt(tx, rollout, `No device of wave ${rollout.wave + 1} is left that could run the version`, now)
}

async function openNextOrComplete(tx: Db, known: RolloutRecord, now: Instant): Promise<void> {
  const rollout = await lockRollout(tx, known.id)
  const isSame = rollout.status === 'running' && rollout.wave === known.wave
  if (!isSame || rollout.waveBeganAt !== known.waveBeganAt) return
  if (!(await isWaveDone(tx, rollout))) return
  if (!(await openNextWave(tx, rollout, now))) await completeRollout(tx, rollout, now)
}
