import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { Problem, refusalText } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import { inNestedTransaction } from '../storage/bisect-writes.ts'
import type { Db } from '../storage/open.ts'
import { entriesFor, mayChangeSome, refusalOf } from './access.ts'
import { type FileField, type Kind, maxChanges, type Section } from './contract.ts'
import {
  type Counts,
  type Ended,
  type Ending,
  EndingWatch,
  endingsOfChange,
  endingsOfDeletion,
  onlyEnding,
  seenCounts,
} from './endings.ts'
import type { Findings } from './findings.ts'
import { KeyLosses } from './key-losses.ts'
import type { References } from './naming.ts'
import type { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import type { CallContext } from './ports.ts'
import type { DesiredObject, StoredObject, Values } from './rules.ts'
import * as rules from './rules.ts'
import { Slugs } from './slugs.ts'
import type { State } from './state.ts'
import type { Ownership } from './store.ts'

/** The single changes of a plan, each done through the endpoint that would do it by itself. */
export class Steps {
  readonly #tx: Db
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: Findings
  readonly #slugs: Slugs
  /** Why the caller may not take over what was taken over, by its id: what is tried again is taken over once. */
  readonly #adopted = new Map<string, { refused: string | null }>()
  readonly #keyLosses = new KeyLosses()
  #on: CallContext
  #scope: Scope

  constructor(tx: Db, context: PlanContext, about: { state: State; owners: Owners; found: Findings }) {
    this.#tx = tx
    this.#context = context
    this.#state = about.state
    this.#owners = about.owners
    this.#found = about.found
    this.#slugs = new Slugs(tx, about.state)
    this.#on = context.on
    this.#scope = context.scope
  }

  /**
   * Whether an object that exists belongs to the set, or does from now on; undefined: it does not, and nothing of it changes.
   * `refused`: why the caller may not take it over. A plan goes on, and shows what the apply of somebody else would change: it
   * reads nothing that the lists do not show the caller.
   */
  async adopted(
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
      this.#found.fault(item.path, `belongs to the set "${owner.set}"${this.#instead(owner, found)}`)
      return undefined
    }
    // A rollback takes over what a rollback before it has released, and nothing else.
    if (!request.adopt && !rolledBack) {
      this.#found.fault(item.path, 'exists and belongs to no set: --adopt takes it over')
      return undefined
    }
    const judged = await this.#refusal(
      this.#updateOf(kind),
      async (call) => {
        await this.#judge(kind, found, call)
        await calls.record(this.#tx, this.#on, {
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
    const isDone = refused === null || this.#on.isRehearsal
    if (isDone) this.#adopted.set(found.id, { refused })
    this.#found.change(shownAs(kind, found), { action: 'adopt', before: null, after: null, refused, isDone })
    if (refused === null) this.#found.addApplied(found, { action: 'adopt', before: null, after: null })
    return isDone ? { refused } : undefined
  }

  #updateOf(kind: Kind): Endpoint {
    return entriesFor(kind, this.#on.admitted).update
  }

  /** Whose set owns it, and what to do: sets of an organization and of its partner may have one name. */
  #instead({ set, isOfPartner }: Ownership, found: StoredObject): string {
    const isPlanOfPartner = this.#context.owner.orgId === null
    if (isOfPartner === isPlanOfPartner) return `: leave it out here, or name that set (--set ${set})`
    if (isOfPartner) return ' of the partner: leave it out here'
    const org = this.#state.org(found) ?? found.orgId
    return ` of the organization ${org}: leave it out here, or apply that set by itself (--org ${org} --set ${set})`
  }

  /** Gives an object that the set has taken over back to nobody. */
  async release(kind: Kind, stored: StoredObject): Promise<void> {
    const judged = await this.#refusal(
      this.#updateOf(kind),
      async (call) => {
        await this.#judge(kind, stored, call)
        await this.#context.calls.record(this.#tx, this.#on, {
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
    this.#found.change(shownAs(kind, stored), {
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
    const { caller } = this.#on
    if ('id' in caller && [found.id, found.record.userId].includes(caller.id)) return
    const undone = new Error('undone')
    const body =
      kind.unchanged?.(found.record) ?? this.#body(kind, this.#state.file(kind, found), new Map(), [kind.key])
    try {
      await inNestedTransaction(this.#tx, async () => {
        await call({ ...rules.targetOf(kind, found), body })
        throw undone
      })
    } catch (error) {
      if (error !== undone) throw error
    }
  }

  /** Whether the caller may change an object: whoever may not does not change either what its set remembers of it. */
  async mayChange(kind: Kind, stored: StoredObject): Promise<boolean> {
    if (!mayChangeSome(this.#context.calls, kind.section, this.#on.admitted)) return false
    try {
      await this.#judge(kind, stored, (input) => this.#call(this.#updateOf(kind), input))
      return true
    } catch (error) {
      if (error instanceof Problem) return false
      throw error
    }
  }

  /** Whether the file has what its kind cannot be made without: asked at each attempt, also once it is made for the other faults. */
  checkNeeded(kind: Kind, item: DesiredObject): void {
    for (const [name, why] of missingFields(kind, item)) this.#found.fault(`${item.path}.${name}`, why)
  }

  /** `inTheWay`: has its name until it is renamed or deleted itself. What is refused may not be there (`State.isAbsent`). */
  async create(
    kind: Kind,
    item: DesiredObject,
    { orgId, inTheWay }: { orgId: string | null; inTheWay: StoredObject | undefined },
    references: References,
  ): Promise<StoredObject | undefined> {
    const made = kind.fields
      // null is what there is without a value.
      .filter(({ name, isMade, isMadeNull }) => isMade && (isMadeNull || item.values[name] !== null))
      .map(({ name }) => name)
    // With something in its place the endpoint says what else is at fault.
    const instead = Object.fromEntries(
      missingFields(kind, item).map(([name]) => [name, kind.placeholders?.[name]]),
    )
    const values = { ...item.values, ...instead }
    const body = { ...this.#body(kind, values, references, made), ...(orgId !== null && { orgId }) }
    const { after } = rules.shownDifference(
      kind,
      null,
      rules.hiddenValues(kind, onlyOf(item.values, made), item.omitted),
    )
    let reply: Values | undefined
    const done = await this.#refusal(
      kind.create,
      async (call) => {
        reply = await call({ body })
      },
      { path: item.path, kind, inTheWay, dependency: this.#refusedDependency(kind, references, made, orgId) },
    )
    const line = { section: kind.section, orgId, key: item.key, id: null }
    if (done)
      this.#found.change(line, {
        action: 'create',
        before: null,
        after,
        warning: done.refused === null ? warningOf(reply) : null,
        refused: done.refused,
        isDone: done.isDone,
      })
    if (!reply) {
      if (done && done.refused !== null) return this.#state.addAbsent(kind.section, body, orgId)
      this.#found.markItemFailed(kind, item)
      return undefined
    }
    const stored = await this.#state.settle(kind.section, { reply, orgId })
    if (!stored) throw new Error(`${kind.section} "${item.key}" was made and is not visible`)
    if (done?.refused) this.#state.noteRefused(stored)
    this.#found.keep(stored.id)
    this.#widen(stored)
    await this.#owners.own(stored, item)
    this.#found.addApplied(stored, { action: 'create', before: null, after: this.#state.file(kind, stored) })
    return stored
  }

  /** A member who sees selected organizations also sees one that they make. */
  #widen({ section, id }: StoredObject): void {
    const { caller } = this.#on
    if (section !== 'organizations' || !('scope' in caller)) return
    const { scope } = caller
    if (scope.kind !== 'partner' || scope.orgs === 'all') return
    const wider = { ...caller, scope: { ...scope, orgs: [...scope.orgs, id] } }
    this.#on = { ...this.#on, admitted: wider, caller: wider }
    this.#scope = wider.scope
    this.#state.widen(wider.scope)
  }

  async update(
    kind: Kind,
    item: DesiredObject,
    { stored, isNew, inTheWay, refused = null }: Updated,
    references: References,
  ): Promise<void> {
    const present = this.#state.file(kind, stored)
    if (!isNew && rules.isDestinationOmitted(kind, item, present)) {
      const { field, to } = kind.bound!
      this.#found.fault(`${item.path}.${to}`, `is required with ${field}, which goes there`)
      return
    }
    const wanted = rules.guarded(kind, item.values, this.#context.cipher.fingerprint)
    const changed = rules.differing(kind, present, wanted)
    for (const { name, field } of kind.fields) {
      // Ids decide: an object may have the name of another.
      const id = references.get(name)
      if (id === undefined) continue
      if (rules.isElsewhere(id, stored.record[field])) changed[name] = item.values[name]
      else delete changed[name]
    }
    const names = Object.keys(changed)
    const fixed = kind.fields.filter(({ name, isChanged }) => !isChanged && names.includes(name))
    const fixedReason = kind.unmade
      ? 'cannot be changed by a file'
      : 'cannot be changed: delete it and create another'
    for (const { name } of fixed) this.#found.fault(`${item.path}.${name}`, fixedReason)
    if (fixed.length > 0) return
    const parts = kind.fields.filter(({ name, part }) => part !== undefined && names.includes(name))
    const own = names.filter((name) => !parts.some((part) => part.name === name))
    const shown = rules.hiddenDifference(kind, onlyOf(present, names), changed)
    this.#tellReferencesApart(kind, stored, shown, references)
    const about = { kind, item, stored, isNew, inTheWay, refused, shown }
    const isFirst = ({ name, part }: FileField) => part!.isFirst?.(item.values[name]) === true
    for (const field of parts.filter(isFirst)) await this.#updateField(about, field, references)
    if (own.length > 0) {
      const said = kind.fields.filter(({ isChanged, part }) => isChanged && part === undefined)
      const values = rules.withBoundSecret(kind, item, present)
      const bound = kind.bound && own.includes(kind.bound.to) ? [kind.bound.field] : []
      const sent = kind.decides ? said.map(({ name }) => name) : [...own, ...bound]
      const body = this.#body(kind, values, references, sent)
      const entry = this.#updateOf(kind)
      await this.#updatePart(about, { entry, body, names: own, path: item.path }, references)
    }
    for (const field of parts) if (!isFirst(field)) await this.#updateField(about, field, references)
  }

  /** Two objects may have one name: a reference from one to the other is a change that names would not show. */
  #tellReferencesApart(
    kind: Kind,
    { record }: StoredObject,
    shown: { before: Values; after: Values },
    references: References,
  ): void {
    for (const { name, field, refersTo } of kind.fields) {
      const ids = references.get(name)
      const isSame = rules.canonical(shown.before[name]) === rules.canonical(shown.after[name])
      if (ids === undefined || !Object.hasOwn(shown.after, name) || !isSame) continue
      const [before, after] = [[record[field] ?? []].flat().map(String), [ids].flat()]
      const labels = (own: readonly string[], other: readonly string[]) =>
        own.map((id) => {
          const key = this.#state.get(refersTo!, id)?.key ?? String(shown.after[name])
          return other.includes(id) ? key : `${key} (${this.#whichOf(refersTo!, id)})`
        })
      const asShown = (all: string[]) => (Array.isArray(ids) ? all.toSorted() : all[0])
      shown.before[name] = asShown(labels(before, after))
      shown.after[name] = asShown(labels(after, before))
    }
  }

  /** What is made has another id each time. */
  #whichOf(section: Section, id: string): string {
    if (this.#state.isMade(id)) return 'new'
    return this.#state.get(section, id)?.isBuiltIn ? 'built-in' : `id ${id}`
  }

  /** What an endpoint of its own changes. */
  async #updateField(about: Update, { name, part }: FileField, references: References): Promise<void> {
    const { kind, item, stored } = about
    const { entry, isBody, target } = part!
    const body = this.#body(kind, item.values, references, [name])
    const asked = isBody
      ? { body: Object.values(body)[0], path: `${item.path}.${name}` }
      : { body, path: item.path }
    const change = { entry, names: [name], ...asked, target: target?.(stored.record) }
    await this.#updatePart(about, change, references)
  }

  /** What one endpoint changes of an object: a change of its own, as it has an audit entry of its own. */
  async #updatePart(
    about: Update,
    {
      entry,
      body,
      names: asked,
      path,
      target,
    }: { entry: Endpoint; body: unknown; names: string[]; path: string; target?: RawInput | undefined },
    references: References,
  ): Promise<void> {
    const { kind, item, isNew, shown } = about
    // An endpoint before this one may have renamed it.
    const stored = this.#state.get(kind.section, about.stored.id) ?? about.stored
    const present = this.#state.file(kind, stored)
    const inTheWay = asked.includes(kind.key) ? about.inTheWay : undefined
    let reply: Values | undefined
    const done = await this.#refusal(
      entry,
      async (call) => {
        reply = await call({ ...(target ?? rules.targetOf(kind, stored)), body })
      },
      {
        path,
        kind,
        stored,
        inTheWay,
        alreadyRefused: about.refused,
        dependency: this.#refusedDependency(kind, references, asked),
        endings: endingsOfChange(kind.section, asked, isNew),
      },
    )
    if (!done) return
    const { refused, ended, isDone } = done
    this.#end(stored, ended)
    const now = reply && (await this.#state.settle(kind.section, { reply, orgId: stored.orgId, stored }))
    // What is not tried decides the same as for whoever may do it.
    const untried = () => kind.decided && { ...present, ...kind.decided(onlyOf(item.values, asked)) }
    const whole = reply ? now && this.#state.file(kind, now) : untried()
    const decided = whole && kind.decides ? decidedFields(kind, present, whole, Object.keys(shown.after)) : []
    const names = [...asked, ...decided]
    const { before, after } = rules.shownDifference(
      kind,
      { ...onlyOf(present, decided), ...onlyOf(shown.before, asked) },
      { ...onlyOf(whole ?? {}, decided), ...onlyOf(shown.after, asked) },
    )
    const isRenamed = item.key !== stored.key && names.includes(kind.key)
    const renamedFrom = isRenamed ? stored.key : null
    this.#found.change(
      // What a plan makes has another id each time.
      { ...shownAs(kind, stored), key: item.key, ...(isNew && { id: null }) },
      {
        action: 'update',
        before,
        after,
        renamedFrom,
        ended,
        // To whoever is refused it may say what is not theirs to know, and of another who does it something else.
        warning: refused === null ? warningOf(reply) : null,
        refused,
        isDone,
      },
    )
    if (!now || refused !== null) return
    this.#found.addApplied(now, {
      action: 'update',
      before: onlyOf(present, names),
      after: onlyOf(whole!, names),
      former: stored.record,
      hidden: names.filter((name) => !Object.hasOwn(present, name)),
      ends: lostOf(ended),
    })
  }

  /** What a change needs and was refused to the caller: its organization, or what it names. undefined: nothing. */
  #refusedDependency(
    { fields }: Kind,
    references: References,
    names: readonly string[],
    orgId: string | null = null,
  ): Dependency | undefined {
    const named = fields.flatMap(({ name, refersTo }) =>
      refersTo !== undefined && names.includes(name)
        ? [references.get(name) ?? []].flat().map((id) => this.#state.get(refersTo, id))
        : [],
    )
    const organization = orgId === null ? undefined : this.#state.get('organizations', orgId)
    const needed = [organization, ...named].filter((one) => one !== undefined)
    const refused = needed.find((one) => this.#state.isRefused(one))
    if (!refused) return undefined
    return {
      why: `needs "${refused.key}" of the ${refused.section}, which is refused`,
      isThere: !needed.some((one) => this.#state.isAbsent(one)),
    }
  }

  /** What a change has ended. Keys of the organization are nobody's to change from now on. */
  #end({ section, id }: StoredObject, ended: readonly Ended[]): void {
    if (section !== 'organizations' || !ended.some(({ counts }) => onlyEnding(counts))) return
    for (const keys of ['apiKeys', 'enrollmentKeys'] as const)
      for (const key of this.#state.has(keys) ? this.#state.all(keys) : [])
        if (key.orgId === id) this.#state.remove(keys, key.id)
  }

  #body({ fields, spelled }: Kind, values: Values, references: References, names: readonly string[]): Values {
    const said = fields.filter(({ name }) => names.includes(name) && values[name] !== undefined)
    return Object.fromEntries(
      said.map(({ name, field }) => [
        field,
        references.get(name) ?? spelled[field]?.toBody(values[name]) ?? values[name],
      ]),
    )
  }

  /** `onConflict`: what is done where something stands in the way, instead of a fault. */
  async delete(
    kind: Kind,
    stored: StoredObject,
    { excess, onConflict }: { excess: string | undefined; onConflict?: (() => void) | undefined },
  ): Promise<void> {
    const { remove } = kind
    if (!remove) throw new Error(`files delete no ${kind.section}`)
    const path = `body.document.${kind.section}`
    const before = rules.shownDifference(
      kind,
      rules.hiddenValues(kind, this.#state.file(kind, stored)),
      null,
    ).before
    const done = await this.#refusal(
      remove,
      async (call) => {
        await call(rules.targetOf(kind, stored))
      },
      {
        path,
        kind,
        stored,
        onConflict,
        prefix: `cannot delete "${stored.key}": `,
        endings: endingsOfDeletion(kind.section),
        isDeletion: true,
      },
    )
    if (!done) return
    const { refused, ended, isDone } = done
    this.#found.change(shownAs(kind, stored), {
      action: 'delete',
      before,
      after: null,
      ended,
      refused: excess ?? refused,
      isDone,
    })
    if (isDone) this.#state.remove(kind.section, stored.id)
    if (refused !== null) return
    this.#found.addApplied(stored, {
      action: 'delete',
      before: this.#state.whole(kind, stored),
      after: null,
      ends: lostOf(ended),
    })
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
    for (const { ending, isVisible, counts, mark } of ended) {
      const noted = onlyEnding(mark ?? counts)
      const { comesAgain, isTransient } = ending
      if (noted && !isTransient) this.#found.end({ counts: noted, isVisible, of, comesAgain, isDone })
    }
  }

  #call(entry: Endpoint, { params, ...asked }: RawInput): Promise<Values> {
    // That of the caller's own partner has no id in its path.
    const input = entry.params ? { ...asked, params } : asked
    return this.#context.calls.call(this.#tx, this.#on, entry, input)
  }

  /**
   * Does one step. The answer says why it is refused, if it is, and whether it was done: a plan does also what is refused.
   * There is none when the files are at fault. A plan goes on after either, so that everything comes at once: what the step
   * changed before it failed is rolled back in any case.
   */
  async #refusal(
    entry: Endpoint,
    step: (call: (input: RawInput) => Promise<Values>) => Promise<void>,
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
    const refused =
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
    try {
      // What a membership needs is locked until the plan ends: accounts and tenants that others use.
      const isThere = dependency?.isThere ?? true
      const isTried = this.#on.isRehearsal && kind.section !== 'memberships' && isThere
      if (refused !== null && !isTried) {
        await begin()
        return because(refused)
      }
      const made = async () => {
        await begin()
        await step((input) => this.#call(entry, input))
        await watch.end()
      }
      const isUnique = kind.section === 'organizations'
      await inNestedTransaction(this.#tx, () =>
        isUnique ? this.#slugs.during(this.#scope, { stored, inTheWay }, made) : made(),
      )
      if (inTheWay) this.#state.setAside(inTheWay)
      return because(refused, true)
    } catch (error) {
      if (!(error instanceof Problem)) throw error
      // Who may not do it learns no more than that: names that are taken elsewhere, quotas and counts are not theirs to know.
      if (refused !== null && error.code !== 'invalid_request') return because(refused)
      if (rules.isRefusal(error)) return because(refusalText(error.message, error.extras.details))
      // It is about how much was done lately, and says when to try again.
      if (error.code === 'rate_limited') throw error
      if (onConflict) {
        onConflict()
        return undefined
      }
      for (const fault of rules.faultsOf(error, kind, path))
        this.#found.fault(fault.path, `${prefix}${fault.message}`)
      return undefined
    }
  }
}

/** How a step went; `isDone`: a plan does also what is refused. */
type Done = { refused: string | null; ended: readonly Ended[]; isDone: boolean }

/** What was refused before, and without which a step is refused; where it is not there, a plan does not try either. */
type Dependency = { why: string; isThere: boolean }

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

/** An object that a file changes; `refused`: why the set may not take it over. */
type Updated = {
  stored: StoredObject
  isNew: boolean
  inTheWay: StoredObject | undefined
  refused?: string | null
}

/** How it changes. */
type Update = Required<Updated> & {
  kind: Kind
  item: DesiredObject
  /** The fields that the file changes, with their secrets hidden. */
  shown: { before: Values; after: Values }
}

/** What an object cannot be made without and the file does not have, and why. */
const missingFields = ({ needed = {} }: Kind, { values }: DesiredObject) =>
  Object.entries(needed).filter(([name]) => values[name] === undefined)

/** Fields that have another value though the file asks for no change of them. */
const decidedFields = ({ fields }: Kind, before: Values, after: Values, asked: readonly string[]): string[] =>
  fields
    .filter(({ name, guard }) => guard === undefined && !asked.includes(name))
    .map(({ name }) => name)
    .filter((name) => rules.canonical(before[name]) !== rules.canonical(after[name]))

/** What an endpoint says beside what it has done. */
const warningOf = (reply: Values | undefined): string | null =>
  typeof reply?.warning === 'string' ? reply.warning : null

/** What no rollback brings back. */
const lostOf = (ended: readonly Ended[]): Counts | undefined =>
  onlyEnding(seenCounts(ended.filter(({ ending }) => !ending.isRestored)))

/** With the id by which people and the audit log know it. */
const shownAs = (kind: Kind, stored: StoredObject): StoredObject => ({
  ...stored,
  id: rules.targetOf(kind, stored).params.id,
})

const onlyOf = (values: Values, names: readonly string[]): Values =>
  Object.fromEntries(Object.entries(values).filter(([name]) => names.includes(name)))
