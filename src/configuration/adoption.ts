import type { RawInput } from '../core/client.ts'
import { Problem } from '../core/errors.ts'
import { inNestedTransaction } from '../storage/bisect-writes.ts'
import type { Db } from '../storage/open.ts'
import { mayChangeSome } from './access.ts'
import type { Kind } from './contract.ts'
import type { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import type { PlanResults } from './plan-results.ts'
import type { DesiredObject, StoredObject, Values } from './rules.ts'
import * as rules from './rules.ts'
import type { State } from './state.ts'
import type { StepRunner } from './step-runner.ts'
import type { Ownership } from './store.ts'

/** Takes over what exists and belongs to no set, and gives it back. */
export class Adoption {
  readonly #tx: Db
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: PlanResults
  readonly #runner: StepRunner
  /** Why the caller may not take over what was taken over, by its id: what is tried again is taken over once. */
  readonly #adopted = new Map<string, { refused: string | null }>()

  constructor(
    tx: Db,
    context: PlanContext,
    about: { state: State; owners: Owners; found: PlanResults; runner: StepRunner },
  ) {
    this.#tx = tx
    this.#context = context
    this.#state = about.state
    this.#owners = about.owners
    this.#found = about.found
    this.#runner = about.runner
  }

  /**
   * Whether an object that exists belongs to the set, or does from now on; undefined: it does not, and nothing of it changes.
   * `refused`: why the caller may not take it over. A plan goes on, and shows what the apply of somebody else would change: it
   * reads nothing that the lists do not show the caller.
   */
  async adopt(
    kind: Kind,
    item: DesiredObject,
    found: StoredObject,
  ): Promise<{ refused: string | null } | undefined> {
    const { request, rolledBack, calls } = this.#context
    // Owners are read before anything is made.
    if (this.#owners.isOwn(found) || this.#state.isMade(found.id)) return { refused: null }
    const known = this.#adopted.get(found.id)
    if (known) return known
    const owner = this.#owners.of(found)
    if (owner) {
      this.#found.fault(item.path, `belongs to the set "${owner.set.name}"${this.#instead(owner.set, found)}`)
      return undefined
    }
    // A rollback takes over what a rollback before it has released, and nothing else.
    if (!request.adopt && !rolledBack) {
      this.#found.fault(item.path, 'exists and belongs to no set: --adopt takes it over')
      return undefined
    }
    const judged = await this.#runner.run(
      this.#runner.updateOf(kind),
      async (call) => {
        await this.#judge(kind, found, call)
        await calls.record(this.#tx, this.#runner.on, {
          action: 'config.adopt',
          resource: kind.resource,
          orgId: found.orgId,
          id: rules.targetOf(kind, found).params.id,
          name: found.key,
        })
        await this.#owners.own(found, item)
      },
      { path: item.path, kind, stored: found },
    )
    if (judged === undefined) return undefined
    const { refused } = judged
    const isDone = refused === null || this.#runner.on.isRehearsal
    if (isDone) this.#adopted.set(found.id, { refused })
    this.#found.change(rules.shownAs(kind, found), {
      action: 'adopt',
      before: null,
      after: null,
      refused,
      isDone,
    })
    if (refused === null) this.#found.addApplied(found, { action: 'adopt', before: null, after: null })
    return isDone ? { refused } : undefined
  }

  /** Whose set owns it, and what to do: sets of an organization and of its partner may have one name. */
  #instead({ name, isOfPartner }: Ownership['set'], found: StoredObject): string {
    const isPlanOfPartner = this.#context.owner.orgId === null
    if (isOfPartner === isPlanOfPartner) return `: leave it out here, or name that set (--set ${name})`
    if (isOfPartner) return ' of the partner: leave it out here'
    const org = this.#state.org(found) ?? found.orgId
    return ` of the organization ${org}: leave it out here, or apply that set by itself (--org ${org} --set ${name})`
  }

  /** Gives an object that the set has taken over back to nobody. */
  async release(kind: Kind, stored: StoredObject): Promise<void> {
    const judged = await this.#runner.run(
      this.#runner.updateOf(kind),
      async (call) => {
        await this.#judge(kind, stored, call)
        await this.#context.calls.record(this.#tx, this.#runner.on, {
          action: 'config.release',
          resource: kind.resource,
          orgId: stored.orgId,
          id: rules.targetOf(kind, stored).params.id,
          name: stored.key,
        })
        await this.#owners.disown(stored)
      },
      { path: `body.document.${kind.section}`, kind, stored, prefix: `cannot release "${stored.key}": ` },
    )
    if (!judged) return
    const { refused, isDone } = judged
    this.#found.change(rules.shownAs(kind, stored), {
      action: 'release',
      before: null,
      after: null,
      refused,
      isDone,
    })
    if (refused === null)
      this.#found.addApplied(stored, {
        action: 'release',
        before: null,
        after: null,
      })
  }

  /** Lets the endpoint judge a change that changes nothing: whoever may not change an object may not take it over. */
  async #judge(kind: Kind, found: StoredObject, call: (input: RawInput) => Promise<Values>): Promise<void> {
    // Nobody changes their own access, a workload that of its trust policy, and to take it over changes nothing.
    const { caller } = this.#runner.on
    if ('id' in caller && [found.id, found.record.userId].includes(caller.id)) return
    const undone = new Error('undone')
    const body =
      kind.unchanged?.(found.record) ??
      rules.bodyOf(kind, this.#state.file(kind, found), new Map(), [kind.key])
    try {
      await inNestedTransaction(this.#tx, async () => {
        await call({ ...rules.targetOf(kind, found), body })
        throw undone
      })
    } catch (error) {
      // What is at fault with it was so before.
      const isOfObject =
        kind.checksAccessFirst && error instanceof Problem && error.code === 'invalid_request'
      if (error !== undone && !isOfObject) throw error
    }
  }

  /** Whether the caller may change an object: whoever may not does not change either what its set remembers of it. */
  async mayChange(kind: Kind, stored: StoredObject): Promise<boolean> {
    if (!mayChangeSome(this.#context.calls, kind.section, this.#runner.on.admitted)) return false
    try {
      await this.#judge(kind, stored, (input) => this.#runner.call(this.#runner.updateOf(kind), input))
      return true
    } catch (error) {
      if (error instanceof Problem) return false
      throw error
    }
  }
}
