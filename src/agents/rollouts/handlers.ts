import { invalid, Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Instant } from '../../core/time.ts'
import { checkCost } from '../../filters/rules.ts'
import * as filters from '../../filters/saved/store.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { isPatternTooComplex } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { checkMayBeOffered } from '../versions/promotion.ts'
import { lockReleases } from '../versions/store.ts'
import { countCandidates, findBuilds, listManual } from './candidates.ts'
import type * as contract from './contract.ts'
import { complete, halt, openNext, reopen } from './moves.ts'
import { countAwaited, countOnVersion, listPlaces, listReasons, tallyOf } from './places.ts'
import { factsOf, isSpent, progressOf } from './progress.ts'
import { checkMove, checkWaves, type Held, type KeptWave, makeRollout, shown } from './rules.ts'
import * as store from './store.ts'

type Rollouts = typeof contract.agentRollouts
type Filter = NonNullable<KeptWave['filter']>

const reasonsShown = 5

/** Whether a rollout was begun whose devices have to be drawn; it may not be written yet. */
export type Beginning = { isBegun: boolean }

export const rolloutHandlers = (beginning: Beginning): HandlersOf<Rollouts> => ({
  list: ({ db, query }) => store.listRollouts(db, query),

  start: inSteps<Rollouts['start'], Map<string, Filter>>({
    async prepare({ storage, ask, scope, body, now }) {
      checkWaves(body.waves)
      const named = new Map<string, Filter>()
      for (const { filterId } of body.waves) {
        if (filterId === undefined || named.has(filterId)) continue
        const { id, name, conditions } = await filters.getFilter(storage.read, scope, filterId)
        checkCost(conditions, 'body.waves')
        named.set(filterId, { id, name, conditions })
      }
      await checkVersion(storage.read, body.version)
      await ask((on) => checkDevices(on, body, named, now))
      return named
    },
    async run({ db, caller, body, now, note }, named) {
      // Nobody removes or promotes the version meanwhile.
      await lockReleases(db)
      await checkVersion(db, body.version)
      const rollout = makeRollout(body, named, { id: newId(), by: caller.id, now })
      await store.insertRollout(db, rollout)
      beginning.isBegun = true
      note({ resourceName: rollout.version })
      return shown(rollout)
    },
  }),

  // Every device of it is counted: where that holds up nobody.
  async show({ db, storage: { heavy }, params, now }) {
    const rollout = await store.getRollout(db, params.id)
    return progressOf(rollout, {
      tally: await tallyOf(heavy, rollout.id),
      onVersion: await countOnVersion(heavy, rollout),
      awaited: await countAwaited(heavy, rollout),
      reasons: await listReasons(heavy, rollout.id, reasonsShown),
      now,
    })
  },

  async devices({ db, ask, params, query }) {
    const { id } = await store.getRollout(db, params.id)
    return ask((on) => listPlaces(on, id, query))
  },

  async halt({ db, caller, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkMove(rollout, 'halt')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return shown(await halt(db, rollout, `Halted by ${caller.email}`, now))
  },

  resume: inSteps<Rollouts['resume'], boolean>({
    async prepare({ storage, params }) {
      const rollout = await store.getRollout(storage.read, params.id)
      const tally = await tallyOf(storage.heavy, rollout.id)
      const spent = isSpent(factsOf(rollout, tally, 0))
      if (!spent || tally.some(({ state }) => state === 'updated' || state === 'soaking')) return spent
      checkMove(rollout, 'resume')
      throw new Problem(
        'conflict',
        `No device has shown that ${rollout.version} works: abort the rollout, or roll it back`,
      )
    },
    async run({ db, params, now, note }, spent) {
      const rollout = await store.lockRollout(db, params.id)
      checkMove(rollout, 'resume')
      note({ resourceName: rollout.version, details: { wave: rollout.wave + 1, reason: rollout.haltReason } })
      if (!spent) return shown(await reopen(db, rollout, now))
      // Of this wave nothing more is to be learned.
      return shown((await openNext(db, rollout, now)) ?? (await complete(db, rollout, now)))
    },
  }),

  async abort({ db, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkMove(rollout, 'abort')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return shown(await end(db, rollout, 'aborted', now))
  },

  async rollBack({ db, params, now, note }) {
    const rollout = await store.lockRollout(db, params.id)
    checkMove(rollout, 'rollBack')
    note({ resourceName: rollout.version, details: { wave: rollout.wave + 1 } })
    return shown(await end(db, rollout, 'rolled_back', now))
  },
})

async function end(db: Db, rollout: Held, status: 'aborted' | 'rolled_back', now: Instant): Promise<Held> {
  const ended: Held = { ...rollout, status, updatedAt: now, endedAt: now }
  await store.saveRollout(db, ended)
  return ended
}

/** @throws not_found, conflict, rollback_needed, below_minimum_version */
async function checkVersion(db: Db, version: string): Promise<void> {
  const builds = await findBuilds(db, version)
  if (builds.length === 0)
    throw new Problem('not_found', `There is no agent ${version}: sync its release first`)
  if (builds.some(({ promotedAt }) => promotedAt === null)) {
    return checkMayBeOffered(db, { version, component: 'agent' })
  }
  throw new Problem('conflict', `${version} is promoted: all agents are offered it already`)
}

/** @throws conflict without a device to begin with, invalid_request for a filter that Postgres gives up on */
async function checkDevices(
  db: Db,
  { version, waves }: contract.NewRollout,
  named: ReadonlyMap<string, Filter>,
  now: Instant,
): Promise<void> {
  const manual = await listManual(db)
  if ((await countCandidates(db, version, manual, { now })) === 0) {
    throw new Problem(
      'conflict',
      `No device can take ${version}: it has no build for them, or they have it or a newer one`,
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
      throw new Problem('conflict', `The filter ${name} finds no device that can take ${version}`)
    }
  }
}
