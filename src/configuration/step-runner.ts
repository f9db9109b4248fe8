import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { Problem, refusalText } from '../core/errors.ts'
import { permissions } from '../core/permissions.ts'
import type { Scope } from '../core/scope.ts'
import { inNestedTransaction } from '../storage/bisect-writes.ts'
import type { Db } from '../storage/open.ts'
import { entriesFor, refusalOf } from './access.ts'
import { type Kind, maxChanges } from './contract.ts'
import { type Ended, type Ending, EndingWatch, onlyEnding } from './endings.ts'
import type { KeyLosses } from './key-losses.ts'
import { checkMembershipFields } from './membership-fields.ts'
import type { PlanContext } from './plan-context.ts'
import type { PlanResults } from './plan-results.ts'
import type { CallContext } from './ports.ts'
import type { StoredObject, Values } from './rules.ts'
import * as rules from './rules.ts'
import { Slugs } from './slugs.ts'
import type { State } from './state.ts'

/** How a step went; `isDone`: a plan does also what is refused. */
export type Done = { refused: string | null; ended: readonly Ended[]; isDone: boolean }

/** What was refused before, and without which a step is refused; where it is not there, a plan does not try either. */
export type Dependency = { why: string; isThere: boolean }

/** What one step is about. */
type Step = {
  path: string
  kind: Kind
  /** undefined: it is new. */
  stored?: StoredObject
  /** Has the name that the step gives to another. */
  inTheWay?: StoredObject | undefined
  /** Why the step before it was refused, without which this one is not done. */
  alreadyRefused?: string | null
  dependency?: Dependency | undefined
  onConflict?: (() => void) | undefined
  /** Of its faults. */
  prefix?: string
  /** What else it may end. */
  endings?: readonly Ending[]
  isDeletion?: boolean
}

type StepBody = (call: (input: RawInput) => Promise<Values>) => Promise<void>

/** Does the steps of a plan, each in a nested transaction, and finds out what is refused, what is at fault, and what ends. */
export class StepRunner {
  readonly #tx: Db
  readonly #context: PlanContext
  readonly #state: State
  readonly #found: PlanResults
  readonly #slugs: Slugs
  readonly #keyLosses: KeyLosses
  #on: CallContext
  #scope: Scope

  constructor(
    tx: Db,
    context: PlanContext,
    about: { state: State; found: PlanResults; keyLosses: KeyLosses },
  ) {
    this.#tx = tx
    this.#context = context
    this.#state = about.state
    this.#found = about.found
    this.#keyLosses = about.keyLosses
    this.#slugs = new Slugs(tx, about.state)
    this.#on = context.on
    this.#scope = context.scope
  }

  /** Who calls, with what they have made in sight. */
  get on(): CallContext {
    return this.#on
  }

  /**
   * Does one step. The answer says why it is refused, if it is, and whether it was done: a plan does also what is refused.
   * There is none when the files are at fault. A plan goes on after either, so that everything comes at once: what the step
   * changed before it failed is rolled back in any case.
   */
  async run(
    entry: Endpoint,
    step: StepBody,
    {
      path,
      kind,
      stored,
      inTheWay,
      alreadyRefused = null,
      dependency,
      onConflict,
      prefix = '',
      endings = [],
      isDeletion = false,
    }: Step,
  ): Promise<Done | undefined> {
    if (this.#found.changes.length > maxChanges) return { refused: null, ended: [], isDone: false }
    // A plan says what would be, whoever asks: its transaction is rolled back.
    let refused =
      alreadyRefused ?? refusalOf(this.#context.calls, entry, this.#on.admitted) ?? dependency?.why ?? null
    const watch = new EndingWatch(endings, { isDeletion })
    const because = (why: string | null, isDone = false) => {
      const isNew = why !== alreadyRefused && why !== dependency?.why
      if (why !== null && isNew) this.#found.refuse(path, `${prefix}${why}`)
      this.#noteEnded(stored, watch.ended, isDone)
      return { refused: why, ended: watch.ended, isDone }
    }
    // Whoever may not change something is not told what that would end. A deletion needs no other permission to be planned.
    const begin = async () => {
      if (stored && endings.length > 0)
        await this.#beginToWatch(watch, kind, stored, isDeletion || refused === null)
    }
    const attempt = async (on: CallContext) => {
      const made = async () => {
        await begin()
        await step((input) => this.call(entry, input, on))
        await watch.end()
      }
      const isUnique = kind.section === 'organizations'
      await inNestedTransaction(this.#tx, () =>
        isUnique ? this.#slugs.during(this.#scope, { stored, inTheWay }, made) : made(),
      )
      if (inTheWay) this.#state.setAside(inTheWay)
    }
    try {
      // What a membership needs is locked until the plan ends: accounts and tenants that others use.
      const isThere = dependency?.isThere ?? true
      const isTried = this.#on.isRehearsal && kind.section !== 'memberships' && isThere
      if (refused !== null && !isTried) {
        if (this.#on.isRehearsal && isThere) await this.#checkFields(entry, step, stored)
        await begin()
        return because(refused)
      }
      try {
        await attempt(this.#on)
      } catch (error) {
        if (!this.#on.isRehearsal || !(error instanceof Problem) || !rules.isRefusal(error)) throw error
        refused ??= refusalText(error.message, error.extras.details)
        await attempt(asIfAllowed(this.#on))
      }
      return because(refused, true)
    } catch (error) {
      if (!(error instanceof Problem)) throw error
      const isInTheWay = rules.isConflict(error) || error.code === 'invalid_request'
      const isStillReferenced = stored !== undefined && this.#state.isStillReferenced(stored)
      // Whoever plans: what goes with its organization is no change, and what is in the way may go later.
      if (onConflict && !isStillReferenced && isInTheWay) {
        onConflict()
        return undefined
      }
      // Who may not do it learns no more than that: names that are taken elsewhere, quotas and counts are not theirs to know.
      if (refused !== null && error.code !== 'invalid_request') return because(refused)
      if (rules.isRefusal(error)) return because(refusalText(error.message, error.extras.details))
      // It is about how much was done lately, and says when to try again.
      if (error.code === 'rate_limited') throw error
      for (const fault of rules.faultsOf(error, kind, path))
        this.#found.fault(fault.path, `${prefix}${fault.message}`)
      return undefined
    }
  }

  /** Finds out what is at fault with what a step asks for, and does not ask for it. */
  async #checkFields(entry: Endpoint, step: StepBody, stored: StoredObject | undefined): Promise<void> {
    const checked = new Error('checked')
    const check = async (input: RawInput): Promise<never> => {
      const { body } = this.#context.calls.parse(entry, input)
      checkMembershipFields(entry, body, stored)
      throw checked
    }
    await step(check).catch((error: unknown) => {
      if (error !== checked) throw error
    })
  }

  call(entry: Endpoint, { params, ...asked }: RawInput, on: CallContext = this.#on): Promise<Values> {
    // That of the caller's own partner has no id in its path.
    const input = entry.params ? { ...asked, params } : asked
    return this.#context.calls.call(this.#tx, on, entry, input)
  }

  updateOf(kind: Kind): Endpoint {
    return entriesFor(kind, this.#on.admitted).update
  }

  /** A member who sees selected organizations also sees one that they make. */
  widen({ section, id }: StoredObject): void {
    const { caller } = this.#on
    if (section !== 'organizations' || !('scope' in caller)) return
    const { scope } = caller
    if (scope.kind !== 'partner' || scope.orgs === 'all') return
    const wider = { ...caller, scope: { ...scope, orgs: [...scope.orgs, id] } }
    this.#on = { ...this.#on, admitted: wider, caller: wider }
    this.#scope = wider.scope
    this.#state.widen(wider.scope)
  }

  /** Counts what may end with a step, for the version of the plan, whoever may see it. */
  #beginToWatch(watch: EndingWatch, kind: Kind, stored: StoredObject, isVisible: boolean): Promise<void> {
    const { calls, on } = this.#context
    const target = rules.targetOf(kind, stored)
    const about = {
      db: this.#tx,
      scope: this.#scope,
      now: on.now,
      keyLosses: this.#keyLosses,
      ask: (entry: Endpoint) => calls.call(this.#tx, { ...this.#on, isRehearsal: true }, entry, target),
    }
    return watch.begin(
      about,
      stored,
      ({ shownTo }) => isVisible && refusalOf(calls, shownTo, this.#on.admitted) === undefined,
    )
  }

  /** What has ended, for the version of the plan, and for a rollback, which ends nothing that has come since. */
  #noteEnded(stored: StoredObject | undefined, ended: readonly Ended[], isDone: boolean): void {
    if (!stored) return
    // What is made has another id each time.
    const { section, id, key } = stored
    const label = this.#state.isMade(id) ? [this.#state.org(stored), key] : [id]
    const of = JSON.stringify([section, ...label])
    for (const { ending, isVisible, counts } of ended) {
      const noted = onlyEnding(counts)
      const { comesAgain, isTransient } = ending
      if (noted && !isTransient) this.#found.end({ counts: noted, isVisible, of, comesAgain, isDone })
    }
  }
}

const everything: ReadonlySet<string> = new Set([...permissions, '*:*'])

/** What an endpoint refuses because of what its caller may do, a plan does all the same: what comes after it builds on that. */
const asIfAllowed = (on: CallContext): CallContext =>
  'permissions' in on.caller
    ? {
        ...on,
        caller: {
          ...on.caller,
          permissions: everything,
          ...('grantable' in on.caller && { grantable: everything }),
        },
      }
    : on
