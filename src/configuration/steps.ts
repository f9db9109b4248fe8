import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { FileField, Kind, Section } from './contract.ts'
import {
  type Counts,
  type Ended,
  endingsOfChange,
  endingsOfDeletion,
  onlyEnding,
  seenCounts,
} from './endings.ts'
import type { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import type { PlanResults } from './plan-results.ts'
import type { DesiredObject, References, StoredObject, Values } from './rules.ts'
import * as rules from './rules.ts'
import type { State } from './state.ts'
import type { Dependency, StepRunner } from './step-runner.ts'

/** The single changes of a plan, each done through the endpoint that would do it by itself. */
export class Steps {
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: PlanResults
  readonly #runner: StepRunner

  constructor(
    context: PlanContext,
    about: { state: State; owners: Owners; found: PlanResults; runner: StepRunner },
  ) {
    this.#context = context
    this.#state = about.state
    this.#owners = about.owners
    this.#found = about.found
    this.#runner = about.runner
  }

  /** Whether the file has what its kind cannot be made without: asked at each attempt, also once it is made for the other faults. */
  checkNeeded(kind: Kind, item: DesiredObject): void {
    for (const [name, why] of missingFields(kind, item)) this.#found.fault(`${item.path}.${name}`, why)
  }

  /** `inTheWay`: has its name until it is renamed or deleted itself. What is refused may not be there (`State.isUndone`). */
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
    const body = { ...rules.bodyOf(kind, values, references, made), ...(orgId !== null && { orgId }) }
    const { after } = rules.shownDifference(
      kind,
      null,
      rules.hiddenValues(kind, onlyOf(item.values, made), item.omitted),
    )
    const organization = orgId === null ? undefined : this.#state.get('organizations', orgId)
    let reply: Values | undefined
    const done = await this.#runner.run(
      kind.create,
      async (call) => {
        reply = await call({ body })
      },
      {
        path: item.path,
        kind,
        inTheWay,
        dependency: this.#refusedDependency(kind, references, made, organization),
      },
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
      if (done && done.refused !== null)
        return this.#pretend(kind, { ...kind.initialValues, ...body }, { inTheWay })
      this.#found.markItemFailed(kind, item)
      return undefined
    }
    const stored = await this.#state.settle(kind.section, { reply, orgId })
    if (!stored) throw new Error(`${kind.section} "${item.key}" was made and is not visible`)
    if (done?.refused) this.#state.noteRefused(stored)
    this.#found.markDesired(stored.id)
    this.#runner.widen(stored)
    await this.#owners.own(stored, item)
    this.#found.addApplied(stored, {
      action: 'create',
      before: null,
      after: this.#state.file(kind, stored),
      formerId: item.identity?.id,
    })
    return stored
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
    // How its endpoint would have kept what the file says is not known; what only a change sets is.
    if (isNew && this.#state.isUndone(stored))
      for (const { name, isMade } of kind.fields) if (isMade) delete changed[name]
    const names = Object.keys(changed)
    const fixed = kind.fields.filter(({ name, isChanged }) => !isChanged && names.includes(name))
    const fixedReason = kind.whyNotCreated
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
      const body = rules.bodyOf(kind, values, references, sent)
      const entry = this.#runner.updateOf(kind)
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
    const body = rules.bodyOf(kind, item.values, references, [name])
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
    const done = await this.#runner.run(
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
        dependency: this.#refusedDependency(
          kind,
          references,
          asked,
          this.#state.isUndone(stored) ? stored : undefined,
        ),
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
      { ...rules.shownAs(kind, stored), key: item.key, ...(isNew && { id: null }) },
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
    if (refused !== null) {
      this.#state.noteDereferenced(stored, { changed: asked, isDone })
      if (isRenamed && kind.section === 'organizations') this.#state.noteRefused(stored)
    }
    if (refused !== null && !isDone) {
      const cleared = kind.fields.filter(({ name }) => kind.decided && name in kind.decided(item.values))
      const values = {
        ...rules.bodyOf(kind, item.values, references, asked),
        ...Object.fromEntries(cleared.map(({ field }) => [field, null])),
      }
      this.#pretend(kind, values, { stored, inTheWay })
    }
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

  /** What is not done goes on as if it was. */
  #pretend(
    { section }: Kind,
    values: Values,
    { stored, inTheWay }: { stored?: StoredObject; inTheWay: StoredObject | undefined },
  ): StoredObject | undefined {
    // Slugs of organizations are set aside in the database as well.
    if (inTheWay && section !== 'organizations') this.#state.setAside(inTheWay)
    return this.#state.pretend(section, values, stored)
  }

  /** What a change needs and was refused to the caller: `base`, or what it names. undefined: nothing. */
  #refusedDependency(
    { fields }: Kind,
    references: References,
    names: readonly string[],
    base: StoredObject | undefined,
  ): Dependency | undefined {
    const named = fields.flatMap(({ name, refersTo }) =>
      refersTo !== undefined && names.includes(name)
        ? [references.get(name) ?? []].flat().flatMap((id) => this.#state.withAbove(refersTo, id))
        : [],
    )
    const needed = [base, ...named].filter((one) => one !== undefined)
    const refused = needed.find((one) => this.#state.isRefused(one))
    if (!refused) return undefined
    return {
      why: `needs "${refused.key}" of the ${refused.section}, which is refused`,
      isThere: !needed.some((one) => this.#state.isUndone(one)),
    }
  }

  /** What a change has ended. Keys of the organization are nobody's to change from now on. */
  #end({ section, id }: StoredObject, ended: readonly Ended[]): void {
    if (section !== 'organizations' || !ended.some(({ counts }) => onlyEnding(counts))) return
    for (const keys of ['apiKeys', 'enrollmentKeys'] as const)
      for (const key of this.#state.has(keys) ? this.#state.all(keys) : [])
        if (key.orgId === id) this.#state.remove(keys, key.id)
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
    const done = await this.#runner.run(
      remove,
      async (call) => {
        await call(rules.targetOf(kind, stored))
      },
      {
        path,
        kind,
        stored,
        onConflict,
        dependency: this.#state.isDereferenced(stored)
          ? { why: 'what refers to it is to be changed or deleted first, which is refused', isThere: true }
          : undefined,
        prefix: `cannot delete "${stored.key}": `,
        endings: endingsOfDeletion(kind.section),
        isDeletion: true,
      },
    )
    if (!done) return
    const { refused, ended, isDone } = done
    this.#found.change(rules.shownAs(kind, stored), {
      action: 'delete',
      before,
      after: null,
      ended,
      refused: excess ?? refused,
      isDone,
    })
    if (refused !== null) this.#state.noteDereferenced(stored, { isDone })
    if (isDone || refused !== null) this.#state.remove(kind.section, stored.id)
    if (refused !== null) return
    this.#found.addApplied(stored, {
      action: 'delete',
      before: this.#state.whole(kind, stored),
      after: null,
      ends: lostOf(ended),
    })
  }
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

const onlyOf = (values: Values, names: readonly string[]): Values =>
  Object.fromEntries(Object.entries(values).filter(([name]) => names.includes(name)))
