import { newId } from '../../core/new-id.ts'
import { addSeconds, type Clock } from '../../core/time.ts'
import { writeBisecting } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { type Candidate, listCandidates, listManualOrgs, listMatching } from './candidates.ts'
import { deleteRolloutDevices, insertRolloutDevices, type NewRolloutDevice } from './devices.ts'
import { assignWaves, type RolloutRecord, rolloutOrderKey, type WaveRecord } from './rules.ts'
import { claimRollout, lockRollout, saveRollout } from './store.ts'
import { abortRollout, openNextWave } from './transitions.ts'

/** Duration of a claim on the assignment; every write extends it. */
const claimSeconds = 60
/** Rows of one write: this bounds how long heartbeats wait. */
const batch = 200
/** Devices processed before yielding to other work. */
const yieldEvery = 2000

/** Yields to the event loop, so that pending requests are answered. */
const yieldToOthers = () => new Promise<void>((resolve) => setImmediate(resolve))

type On = { storage: Storage; clock: Clock }

/**
 * Assigns the devices of a rollout to waves and opens the first one. One process at a time does; an unfinished
 * assignment of another process is started anew, because the fleet may have changed.
 */
export async function assignDevices({ storage, clock }: On, rollout: RolloutRecord): Promise<void> {
  const writeClaimed = claimedWriter({ storage, clock }, rollout.id)
  if (!(await writeClaimed())) return
  while ((await writeClaimed((tx) => deleteRolloutDevices(tx, rollout.id, batch))) === batch);

  const devices = await shuffle(rollout, await candidatesOf(storage, rollout))
  const found = await matchesByWave(storage, rollout, clock)
  const waveOf = assignWaves(rollout.waves, devices.length, (wave, at) => found[wave]!.has(devices[at]!.id))
  await yieldToOthers()

  for (let at = 0; at < devices.length; at += batch) {
    const places = devices
      .slice(at, at + batch)
      .flatMap((device, n) =>
        waveOf[at + n] === -1 ? [] : [{ ...newDeviceOf(device, waveOf[at + n]!), at: at + n }],
      )
    const insert = (some: typeof places) =>
      writeClaimed((tx) =>
        insertRolloutDevices(
          tx,
          rollout.id,
          some.map(({ at: _, ...place }) => place),
        ),
      )
    const { done, refused } = await writeBisecting(places, (some) => insert([...some]))
    if (done.includes(undefined)) return
    // A device that cannot be inserted is left out, and does not block the others.
    for (const { item } of refused) waveOf[item.at] = -1
  }
  const waves = rollout.waves.map((wave, n): WaveRecord => ({ ...wave, devices: countIn(waveOf, n) }))
  await writeClaimed((tx) => startRollout(tx, rollout.id, waves, clock))
}

/** Writes only while this run holds the claim; undefined when another process holds it. */
function claimedWriter({ storage, clock }: On, id: string) {
  const by = newId()
  return <T>(work: (tx: Db) => Promise<T> = async () => true as T): Promise<T | true | undefined> =>
    storage.write(async (tx) => {
      const now = clock()
      const held = await claimRollout(tx, id, { by, now, until: addSeconds(now, claimSeconds) })
      return held ? ((await work(tx)) ?? true) : undefined
    })
}

async function candidatesOf(storage: Storage, { version }: RolloutRecord): Promise<Candidate[]> {
  const manual = await listManualOrgs(storage.heavy)
  const all: Candidate[] = []
  for (let last: string | undefined = ''; last !== undefined; ) {
    const page = await listCandidates(storage.heavy, version, last, manual)
    for (const one of page.found) all.push(one)
    last = page.last
  }
  return all
}

/** The devices that the filter of each wave matches. */
async function matchesByWave(
  storage: Storage,
  { version, waves }: RolloutRecord,
  clock: Clock,
): Promise<Set<string>[]> {
  const now = clock()
  const sets: Set<string>[] = []
  for (const { filter } of waves) {
    const ids = new Set<string>()
    for (let last: string | undefined = filter ? '' : undefined; last !== undefined; ) {
      const page = await listMatching(storage.heavy, version, filter!.conditions, { after: last, now })
      for (const id of page.found) ids.add(id)
      last = page.last
    }
    sets.push(ids)
  }
  return sets
}

/**
 * Sorts in buckets by the first two hex digits of the shuffle keys: sorting a large fleet in one step would block
 * requests.
 */
async function shuffle({ id }: RolloutRecord, devices: readonly Candidate[]): Promise<Candidate[]> {
  type Lot = { lot: string; device: Candidate }
  const parts = new Map<string, Lot[]>()
  for (const [n, device] of devices.entries()) {
    if (n % yieldEvery === yieldEvery - 1) await yieldToOthers()
    const lot = rolloutOrderKey(id, device.id)
    const part = parts.get(lot.slice(0, 2)) ?? []
    part.push({ lot, device })
    parts.set(lot.slice(0, 2), part)
  }
  const ordered: Candidate[] = []
  for (const key of [...parts.keys()].sort()) {
    const part = parts.get(key)!.sort((a, b) => (a.lot < b.lot ? -1 : 1))
    for (const { device } of part) ordered.push(device)
    await yieldToOthers()
  }
  return ordered
}

const newDeviceOf = ({ id, orgId, fromVersion, isHeld }: Candidate, wave: number): NewRolloutDevice => ({
  device_id: id,
  org_id: orgId,
  wave,
  from_version: fromVersion,
  is_held: isHeld ? 1 : 0,
})

const countIn = (waveOf: Int16Array, wave: number): number =>
  waveOf.reduce((count, one) => (one === wave ? count + 1 : count), 0)

async function startRollout(tx: Db, id: string, waves: WaveRecord[], clock: Clock): Promise<void> {
  const now = clock()
  const rollout: RolloutRecord = { ...(await lockRollout(tx, id)), waves }
  await saveRollout(tx, rollout)
  const [first] = waves
  if ((first?.devices ?? 0) === 0) {
    // The purpose of a first wave is to succeed before any other device is updated.
    return abortRollout(tx, rollout, 'No device of the first wave can take the version', now)
  }
  await openNextWave(tx, { ...rollout, wave: -1 }, now)
}
