import { addSeconds, type Clock, type Instant } from '../../core/time.ts'
import { writeBisecting } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { PlaceState } from './contract.ts'
import { complete, haltIfDue, haltItself, openNext } from './moves.ts'
import {
  countAwaited,
  findLate,
  findOutOfUse,
  findResting,
  findSilent,
  isQuiet,
  settle,
  tallyOf,
} from './places.ts'
import { factsOf, isSpent, waitsOf } from './progress.ts'
import { type Held, lateness, outOfUse } from './rules.ts'
import { getRollout, lockRollout } from './store.ts'

type On = { storage: Storage; clock: Clock; offlineAfterSeconds: number }

/** Devices that are looked for at a time, and those of one write: heartbeats wait for no longer than that. */
const found = 5000
const written = 500

type Over = { id: string; from: readonly PlaceState[]; to: PlaceState; reason: string }

/**
 * Brings a rollout as far as it can be by now: what is late, silent or out of use is settled, too many failures halt it, and
 * when nothing is waited for the next wave opens. Any number of processes may do so at once: each change is made by whoever
 * holds the rollout, and looks again.
 */
export async function advance(on: On, rollout: Held): Promise<void> {
  const failure = await settleOver(on, rollout)
  await goOnIfDue(on, rollout)
  if (failure !== undefined) throw failure
}

async function goOnIfDue({ storage, clock }: On, rollout: Held): Promise<void> {
  const now = clock()
  const known = await getRollout(storage.read, rollout.id)
  if (known.status !== 'running') return
  const facts = factsOf(
    known,
    await tallyOf(storage.heavy, known.id),
    await countAwaited(storage.heavy, known),
  )
  if (isSpent(facts)) return storage.write((tx) => haltSpent(tx, known, now))
  if (waitsOf(known, facts, now).length > 0) return
  await storage.write((tx) => goOn(tx, known, now))
}

/**
 * A time that has passed, or what people did, settles these devices. Gives why some of
 * them could not be: they wait, and the others do not.
 */
async function settleOver({ storage, clock, offlineAfterSeconds }: On, rollout: Held): Promise<unknown> {
  const { heavy } = storage
  const { gateMinutes, soakMinutes } = rollout
  let failure: unknown
  for (;;) {
    const now = clock()
    const ago = (seconds: number) => addSeconds(now, -seconds)
    const out = await findOutOfUse(heavy, rollout, found)
    const late = await findLate(heavy, rollout, ago(gateMinutes * 60), found)
    const silent = await findSilent(heavy, rollout, ago(offlineAfterSeconds), found)
    const resting = await findResting(heavy, rollout, ago(soakMinutes * 60), found)
    const died = { to: 'failed' as const, reason: `Silent within ${soakMinutes} minutes of its update` }
    const over: Over[] = [
      ...out.map(({ id, status }) => ({
        ...{ id, from: ['waiting', 'offered', 'soaking'] as const },
        ...{ to: 'withdrawn' as const, reason: outOfUse(status) ?? 'Its organization was deleted' },
      })),
      ...late.map((device) => ({ id: device.id, from: ['offered'] as const, ...lateness(device, rollout) })),
      ...silent.map(({ id }) => ({ id, from: ['soaking'] as const, ...died })),
      ...resting.map(({ id }) => ({
        ...{ id, from: ['soaking'] as const },
        ...{ to: 'updated' as const, reason: 'In maintenance while it soaked' },
      })),
    ]
    for (let at = 0; at < over.length; at += written) {
      const { done, refused } = await writeBisecting(over.slice(at, at + written), (some) =>
        storage.write((tx) => settleSome(tx, rollout.id, some, now)),
      )
      failure ??= refused[0]?.error
      if (done.includes(false)) return failure
    }
    if (over.length < found || failure !== undefined) return failure
  }
}

/** false when nobody is judged any more. */
async function settleSome(tx: Db, id: string, over: readonly Over[], now: Instant): Promise<boolean> {
  const rollout = await lockRollout(tx, id)
  if (rollout.status !== 'running' && rollout.status !== 'halted') return false
  for (const { id: deviceId, from, to, reason } of over) {
    await settle(tx, id, deviceId, from, { to, reason, now })
  }
  await haltIfDue(tx, rollout, now)
  return true
}

/** Nobody of the wave could show that the version works: that is for a person to decide. */
async function haltSpent(tx: Db, known: Held, now: Instant): Promise<void> {
  const rollout = await lockRollout(tx, known.id)
  if (rollout.status !== 'running' || rollout.wave !== known.wave) return
  await haltItself(tx, rollout, `Nobody of wave ${rollout.wave + 1} is left that could take the version`, now)
}

async function goOn(tx: Db, known: Held, now: Instant): Promise<void> {
  const rollout = await lockRollout(tx, known.id)
  const isSame = rollout.status === 'running' && rollout.wave === known.wave
  if (!isSame || rollout.waveBeganAt !== known.waveBeganAt) return
  if (!(await isQuiet(tx, rollout))) return
  if (!(await openNext(tx, rollout, now))) await complete(tx, rollout, now)
}
