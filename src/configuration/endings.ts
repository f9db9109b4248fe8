import type { Endpoint } from '../core/endpoint.ts'
import { organizationScope, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { readAccessOfKeys } from '../credentials/api-keys/access.ts'
import { apiKeys } from '../credentials/api-keys/contract.ts'
import { listApiKeyCreators } from '../credentials/api-keys/store.ts'
import { deviceGroups } from '../groups/contract.ts'
import { countPinned } from '../groups/members.ts'
import { getGroup } from '../groups/store.ts'
import { listDescendants } from '../identity/roles/inheritance.ts'
import { countSessionsIn } from '../identity/sessions/tenants.ts'
import { people } from '../identity/users/contract.ts'
import { ssoIdentities } from '../sso/identities/contract.ts'
import type { Db } from '../storage/open.ts'
import { orgs } from '../tenancy/contract.ts'
import { countSelections } from '../tenancy/store.ts'
import { webhooks } from '../webhooks/contract.ts'
import { countWaitingDeliveries } from '../webhooks/deliveries/store.ts'
import type { Section } from './contract.ts'
import type { KeyLosses } from './key-losses.ts'
import type { StoredObject, Values } from './rules.ts'

/** How many of each kind end, or have ended, with something. */
export type Counts = Record<string, number>

type On = {
  db: Db
  scope: Scope
  now: Instant
  /** Of the plan. */
  keyLosses: KeyLosses
  /** Asks an endpoint about the object, whoever may call it. */
  ask(entry: Endpoint): Promise<Values>
}

/** What is known before a change; `ended`: what has ended once it is done. */
type Begun = {
  ended(): Promise<Counts>
  /** What has ended once the last step of the plan is done, where that says more than this step. */
  endedByPlan?(): Counts
}

/** What changes of an object, or its deletion, end besides. */
export type Ending = {
  of: readonly ('deletion' | 'change')[]
  /** The fields whose change may end something; undefined: any. */
  fields?: readonly string[]
  /** Also where the object is new. */
  ofNew?: true
  /** Whoever may call it may see how much ends. */
  shownTo: Endpoint
  begin(on: On, stored: StoredObject, isDeletion: boolean): Promise<Begun>
  /** What has come since an apply may end with its rollback: it comes again by itself, or was not there to stay. */
  comesAgain?: true
  /** No version depends on it: it comes and goes by the minute, or differs by who plans. */
  isTransient?: true
  /** A rollback brings it back. */
  isRestored?: true
}

/** Counted before and after. With a deletion ends all that there was. */
const counted =
  (count: (on: On, stored: StoredObject) => Promise<Counts>): Ending['begin'] =>
  async (on, stored, isDeletion) => {
    const before = await count(on, stored)
    return {
      ended: async () => (isDeletion ? before : (endedBetween(before, await count(on, stored)) ?? {})),
    }
  }

/** Keys may do what whoever made them may do. */
const keysOf =
  (creatorsOf: (on: On, stored: StoredObject) => Promise<readonly string[]>): Ending['begin'] =>
  async (on, stored) => {
    const { db, scope, now, keyLosses } = on
    const creators = await creatorsOf(on, stored)
    const keys = await keyLosses.begin(() => readAccessOfKeys(db, scope, creators, now))
    return {
      async ended() {
        await keys.end()
        // The version has what the keys could do before.
        return {}
      },
      endedByPlan(): Counts {
        if (keys.count === 0) return {}
        const { all, part } = keys.losses()
        return { apiKeys: all, limitedApiKeys: part }
      },
    }
  }

const identities: Pick<Ending, 'shownTo' | 'begin'> = {
  shownTo: ssoIdentities.list,
  begin: counted(async ({ ask }) => {
    const { pagination } = await ask(ssoIdentities.list)
    return { identities: (pagination as { total: number }).total }
  }),
}

const endings: Partial<Record<Section, readonly Ending[]>> = {
  organizations: [
    {
      of: ['deletion'],
      shownTo: orgs.deletion,
      begin: counted(async ({ ask }) => (await ask(orgs.deletion)) as Counts),
    },
    {
      of: ['deletion'],
      shownTo: orgs.deletion,
      // Whoever makes an organization may see it from then on, and it is among those that they have selected.
      comesAgain: true,
      // Members that the same plan changes have selected another by then, for whoever may change them.
      isTransient: true,
      begin: counted(async ({ db, scope }, { id }) => ({ selections: await countSelections(db, scope, id) })),
    },
    {
      of: ['change'],
      fields: ['status'],
      shownTo: orgs.update,
      // Its members and everything else are there again when it is in use again.
      begin: counted(async ({ ask }) => {
        const { apiKeys, enrollmentKeys } = await ask(orgs.deletion)
        return { apiKeys: Number(apiKeys), enrollmentKeys: Number(enrollmentKeys) }
      }),
    },
  ],
  roles: [
    {
      of: ['change'],
      fields: ['permissions', 'parent'],
      shownTo: apiKeys.list,
      comesAgain: true,
      isRestored: true,
      begin: keysOf(async ({ db, scope, now }, { id }) => {
        const below = await listDescendants(db, id)
        const ids = below.map((one) => one.id)
        return listApiKeyCreators(db, scope, ids, now)
      }),
    },
  ],
  deviceGroups: [
    {
      of: ['deletion'],
      shownTo: deviceGroups.show,
      begin: counted(async ({ db, scope }, { id, record }) => {
        const isStatic = record.type === 'static'
        // A filter finds the members of a dynamic group again, but for those that somebody has pinned.
        const members = isStatic
          ? (await getGroup(db, scope, id)).deviceCount
          : await countPinned(db, scope, id)
        return { groupMembers: members }
      }),
    },
  ],
  memberships: [
    {
      of: ['deletion', 'change'],
      shownTo: apiKeys.list,
      comesAgain: true,
      isRestored: true,
      begin: keysOf(async (_, { record }) => [String(record.userId)]),
    },
  ],
  webhooks: [
    {
      of: ['deletion'],
      shownTo: webhooks.list,
      comesAgain: true,
      isTransient: true,
      begin: counted(async ({ db, scope }, { id }) => ({
        pendingDeliveries: await countWaitingDeliveries(db, scope, id),
      })),
    },
  ],
  ssoProviders: [
    { of: ['deletion'], ...identities },
    {
      of: ['change'],
      // Another issuer has other subjects. A preset may decide it.
      fields: ['type', 'preset', 'issuer', 'entityId'],
      ...identities,
      comesAgain: true,
    },
    {
      of: ['deletion', 'change'],
      ofNew: true,
      shownTo: people.list,
      comesAgain: true,
      isTransient: true,
      // Those that began at it, or with a password where single sign-on is enforced from now on.
      begin: async ({ db, now }, { orgId }) => {
        const count = () => countSessionsIn(db, organizationScope(orgId!), now)
        const before = await count()
        return { ended: async () => ({ sessions: before - (await count()) }) }
      },
    },
  ],
}

export const endingsOfDeletion = (section: Section): readonly Ending[] =>
  (endings[section] ?? []).filter((one) => one.of.includes('deletion'))

/** Who may see all that may end with objects of a section. */
export const endingsShownTo = (section: Section): readonly Endpoint[] =>
  (endings[section] ?? []).map(({ shownTo }) => shownTo)

/** What a change of these fields may end. */
export const endingsOfChange = (
  section: Section,
  changed: readonly string[],
  isNew: boolean,
): readonly Ending[] =>
  (endings[section] ?? []).filter(
    ({ of, fields, ofNew = false }) =>
      of.includes('change') &&
      (!isNew || ofNew) &&
      (fields === undefined || fields.some((field) => changed.includes(field))),
  )

/** What has ended with a step. */
export type Ended = {
  ending: Ending
  isVisible: boolean
  counts: Counts | undefined
  /** As the plan shows it once all its steps are done. */
  shown(): Counts | undefined
}

/** Counts what a step ends. A step that is refused is not always done. */
export class EndingWatch {
  readonly #endings: readonly Ending[]
  readonly #isDeletion: boolean
  #watched: { ended: Ended; begun: Begun }[] = []

  constructor(endings: readonly Ending[], { isDeletion }: { isDeletion: boolean }) {
    this.#endings = endings
    this.#isDeletion = isDeletion
  }

  async begin(on: On, stored: StoredObject, isVisible: (ending: Ending) => boolean): Promise<void> {
    this.#watched = []
    for (const ending of this.#endings) {
      const begun = await ending.begin(on, stored, this.#isDeletion)
      const ended: Ended = {
        ending,
        isVisible: isVisible(ending),
        counts: undefined,
        shown: () => ended.counts && (begun.endedByPlan?.() ?? ended.counts),
      }
      this.#watched.push({ ended, begun })
    }
  }

  async end(): Promise<void> {
    for (const { ended, begun } of this.#watched) ended.counts = await begun.ended()
  }

  get ended(): readonly Ended[] {
    return this.#watched.map(({ ended }) => ended)
  }
}

/** The sum of what was counted; undefined: nothing was. */
export function addCounts(all: readonly (Counts | undefined)[]): Counts | undefined {
  const found = all.filter((one) => one !== undefined)
  if (found.length === 0) return undefined
  const sum: Counts = {}
  for (const [kind, count] of found.flatMap((one) => Object.entries(one)))
    sum[kind] = (sum[kind] ?? 0) + count
  return sum
}

/** What the caller may see of what has ended. */
export const seenCounts = (ended: readonly Ended[]): Counts | undefined =>
  addCounts(ended.filter(({ isVisible }) => isVisible).map((one) => one.shown()))

/** Without what does not end; undefined: nothing does. */
export function onlyEnding(counts: Counts | undefined): Counts | undefined {
  const ending = Object.entries(counts ?? {}).filter(([, count]) => count > 0)
  return ending.length > 0 ? Object.fromEntries(ending) : undefined
}

/** What is not there any more; undefined: nothing is missing. */
function endedBetween(before: Counts, after: Counts): Counts | undefined {
  return onlyEnding(
    Object.fromEntries(Object.entries(before).map(([kind, count]) => [kind, count - (after[kind] ?? 0)])),
  )
}
