import { invalid, Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import { checkCost } from '../../filters/rules.ts'
import * as filters from '../../filters/saved/store.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { isPatternTooComplex } from '../../storage/database-errors.ts'
import type { Db } from '../../storage/open.ts'
import { checkPromotable } from '../versions/promotion.ts'
import { lockReleases } from '../versions/store.ts'
import { countCandidates, findBuilds, listManualOrgs } from './candidates.ts'
import type * as contract from './contract.ts'
import { listRolloutDevices, tallyByWave } from './devices.ts'
import { isExhausted, noEligibleDevices, waveProgressOf } from './progress.ts'
import { readProgress } from './read-progress.ts'
import {
  checkTransition,
  checkWaves,
  makeRollout,
  type RolloutRecord,
  toRollout,
  type WaveRecord,
} from './rules.ts'
import * as store from './store.ts'
import { completeRollout, haltRollout, openNextWave, startWave } from './transitions.ts'

type Rollouts = typeof contract.agentRollouts
type Filter = NonNullable<WaveRecord['filter']>

/** Set when a rollout was started whose devices have to be assigned; its transaction may not be committed yet. */
export type RolloutSignal = { isStarted: boolean }

export const rolloutHandlers = (signal: RolloutSignal): HandlersOf<Rollouts> => ({
  list: ({ db, query }) => store.listRollouts(db, query),

  start: inSteps<Rollouts['start'], Map<string, Filter>>({
    async prepare({ storage, readQuery, scope, body, now }) {
      checkWaves(body.waves)
      const named = new Map<string, Filter>()
      for (const { filterId } of body.waves) {
        if (filterId === undefined || named.has(filterId)) continue
        const { id, name, conditions } = await filters.getFilter(storage.read, scope, filterId)
        checkCost(conditions, 'body.waves')
        named.set(filterId, { id, name, conditions })
      }
      await checkVersion(storage.read, body.version)
      await readQuery((on) => checkDevices(on, body, named, now))
      return named
    },
    async run({ db, caller, body, now, note }, named) {
      // Locked, so that nobody removes or promotes the version concurrently.
      await lockReleases(db)
      await checkVersion(db, body.version)
      const rollout = makeRollout(body, named, { id: newId(), by: caller.id, now })
      await store.insertRollout(db, rollout)
      signal.isStarted = true
      note({ resourceName: rollout.version })
      return toRollout(rollout)
    },
  }),

  show: async ({ db, storage, params, now }) =>
    readProgress(storage.heavy, await store.getRollout(db, params.id), now),

  async devices({ db, readQuery, params, query }) {
    const { id } = await store.getRollout(db, params.id)
    return readQuery((on) => listRolloutDevices(on, id, query))
  },

  async halt({ db, caller, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkTransition(rollout, 'halt')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return toRollout(await haltRollout(db, rollout, `Halted by ${caller.email}`, now))
  },

  resume: inSteps<Rollouts['resume'], boolean>({
    async prepare({ storage, params }) {
      const rollout = await store.getRollout(storage.read, params.id)
      const tally = await tallyByWave(storage.heavy, rollout.id)
      const spent = isExhausted(waveProgressOf(rollout, tally, noEligibleDevices))
      if (!spent || tally.some(({ state }) => state === 'updated' || state === 'soaking')) return spent
      checkTransition(rollout, 'resume')
      throw new Problem(
        'conflict',
        `No device has shown that ${rollout.version} works: abort the rollout, or roll it back`,
      )
    },
    async run({ db, params, now, note }, spent) {
      const rollout = await store.lockRollout(db, params.id)
      checkTransition(rollout, 'resume')
      note({ resourceName: rollout.version, details: { wave: rollout.wave + 1, reason: rollout.haltReason } })
      if (!spent) return toRollout(await startWave(db, rollout, now))
      // No device of this wave is left to observe.
      return toRollout((await openNextWave(db, rollout, now)) ?? (await completeRollout(db, rollout, now)))
    },
  }),

  async abort({ db, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkTransition(rollout, 'abort')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return toRollout(await end(db, rollout, 'aborted', now))
  },

  async rollBack({ db, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkTransition(rollout, 'rollBack')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return toRollout(await end(db, rollout, 'rolled_back', now))
  },
})

async function end(
  db: Db,
  rollout: RolloutRecord,
  status: 'aborted' | 'rolled_back',
  now: Instant,
): Promise<RolloutRecord> {
  const ended: RolloutRecord = { ...rollout, status, updatedAt: now, endedAt: now }
  await store.saveRollout(db, ended)
  return ended
}

/** @throws not_found, conflict, rollback_needed, below_minimum_version */
async function checkVersion(db: Db, version: string): Promise<void> {
  const builds = await findBuilds(db, version)
  if (builds.length === 0)
    throw new Problem('not_found', `There is no agent ${version}: sync its release first`)
  if (builds.some(({ promotedAt }) => promotedAt === null)) {
    return checkPromotable(db, { version, component: 'agent' })
  }
  throw new Problem('conflict', `${version} is promoted: it is already offered to all agents`)
}

/**
 * @throws conflict when no device can run the version, invalid_request for a filter that Postgres refuses as too
 * complex
 */
async function checkDevices(
  db: Db,
  { version, waves }: contract.NewRollout,
  named: ReadonlyMap<string, Filter>,
  now: Instant,
): Promise<void> {
  const manual = await listManualOrgs(db)
  if ((await countCandidates(db, version, manual, { now })) === 0) {
    throw new Problem(
      'conflict',
      `No device can run ${version}: it has no build for them, or they run it or a newer one`,
    )
  }
  for (const [n, { filterId }] of waves.entries()) {
    if (filterId === undefined) continue
    const path = `body.waves.${n}.filterId`
    const { conditions, name } = named.get(filterId)!
    const count = countCandidates(db, version, manual, { conditions, now }).catch((error: unknown) => {
      if (!isPatternTooComplex(error)) throw error
      throw invalid([{ path, message: 'a pattern is too complex for this database' }])
    })
    if ((await count) === 0) {
      throw new Problem('conflict', `The filter ${name} matches no device that can run ${version}`)
    }
  }
}
