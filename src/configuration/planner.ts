import { createHash, hash } from 'node:crypto'
import type { Fault } from '../core/errors.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { checkMayRead, mayChangeSome, mayRead, readableParts, refusalOf } from './access.ts'
import { Adoption } from './adoption.ts'
import { type AuditTrail, mayReadAudit } from './audit-trail.ts'
import { type Kind, kinds, maxChanges, type Plan, type Section, sections } from './contract.ts'
import { Deletions } from './deletions.ts'
import { endingsShownTo } from './endings.ts'
import { type AppliedChange, sectionsOfChanges } from './history/applied-changes.ts'
import * as conflicts from './history/conflicts.ts'
import type { Lost } from './history/contract.ts'
import { type Rollback, rollbackOf } from './history/rollback.ts'
import { KeyLosses } from './key-losses.ts'
import type { DesiredObjectInOrg, ObjectMatch } from './matching.ts'
import { changesSince } from './movers.ts'
import { Naming } from './naming.ts'
import { notComparedOf, omittedSecretsOf, withPlaceholders } from './omitted-secrets.ts'
import { Owners } from './owners.ts'
import type { PlanContext } from './plan-context.ts'
import { type Failure, PlanResults } from './plan-results.ts'
import {
  digestOf,
  isOfState,
  movedBesides,
  movedSections,
  type StateMark,
  sectionMarkOf,
  stateMarkOf,
  versionOf,
} from './plan-version.ts'
import type {
  ConfigurationRequest,
  DesiredObject,
  MissingObject,
  References,
  StoredObject,
  Values,
} from './rules.ts'
import * as rules from './rules.ts'
import { State } from './state.ts'
import { StepRunner } from './step-runner.ts'
import { Steps } from './steps.ts'
import type { NameChange } from './store.ts'
import { TimeSlice } from './time-slice.ts'

/**
 * Does everything that the files ask for in a transaction, through the endpoints of each kind, and says what that was. To
 * plan is to do the same and to roll the transaction back.
 */
export class Planner {
  readonly #tx: Db
  readonly #context: PlanContext
  readonly #state: State
  readonly #owners: Owners
  readonly #found: PlanResults
  readonly #naming: Naming
  readonly #adoption: Adoption
  readonly #steps: Steps
  readonly #deletions: Deletions
  readonly #keyLosses = new KeyLosses()
  readonly #timeSlice = new TimeSlice()
  readonly #yieldIfDue = () => this.#timeSlice.yieldIfDue()
  #rollback: Rollback | undefined
  /** Ids that names in the files resolve to, by the place of the object; what this plan makes is null, as its ids differ each time. */
  readonly #resolvedIds = new Map<string, string>()
  /** What was made for the objects of the files: an object whose creation is not all of it may be tried again. */
  readonly #made = new Map<DesiredObject, StoredObject>()
  /** What the files refer to, by its id. */
  readonly #referred = new Map<string, StoredObject>()
  readonly #missing: MissingObject[] = []

  constructor(tx: Db, context: PlanContext) {
    this.#tx = tx
    this.#context = context
    this.#state = new State(tx, { ...context, now: context.on.now })
    this.#owners = new Owners(tx, context)
    this.#found = new PlanResults(this.#state, this.#owners)
    const about = { state: this.#state, owners: this.#owners, found: this.#found }
    const runner = new StepRunner(tx, context, { ...about, keyLosses: this.#keyLosses })
    this.#adoption = new Adoption(tx, context, { ...about, runner })
    this.#steps = new Steps(context, { ...about, runner })
    this.#deletions = new Deletions(context, {
      ...about,
      adoption: this.#adoption,
      steps: this.#steps,
      timeSlice: this.#timeSlice,
    })
    this.#naming = new Naming(context, { ...about, isLeaving: (stored) => this.#deletions.isLeaving(stored) })
  }

  /** `expected`: of the plan that is applied. @throws invalid_request with every fault, conflict, forbidden */
  async plan(expected?: {
    version: string
    plannedAt?: Instant | undefined
  }): Promise<Omit<Plan, 'plannedAt'>> {
    const { rolledBack } = this.#context
    const { orgId } = this.#context.owner
    const named = rolledBack
      ? sectionsOfChanges(rolledBack)
      : rules.sectionsOf(this.#context.request.document, orgId).named
    await this.#read(named)
    for (const section of named) {
      this.#missing.push(...this.#owners.missing(section, this.#state))
      await this.#timeSlice.yieldIfDue()
    }
    if (rolledBack) this.#rollback = await this.#rollbackOf(rolledBack)
    this.#deletions.rolledBack = this.#rollback?.deletions
    const { cipher } = this.#context
    const { request } = this
    const { faults } = rules.sectionsOf(request.document, orgId)
    const omitted = omittedSecretsOf(request)
    const own = orgId === null ? undefined : this.#state.get('organizations', orgId)?.key
    const items = await this.#items(named, own, omitted.of)
    const bySection = Map.groupBy(items, ({ section }) => section)
    const twice = new Map<DesiredObject, Fault>()
    for (const all of bySection.values()) {
      for (const [item, fault] of rules.duplicateFaults(all)) twice.set(item, fault)
      await this.#timeSlice.yieldIfDue()
    }
    this.#found.addFaults([...faults, ...omitted.faults, ...twice.values()])
    const state = await this.#stateMark(named)
    if (expected && !isOfState(expected.version, state)) {
      const moved = movedSections(expected.version, named, state)
      throw rules.outdatedPlan(await this.#changedSince(named, moved, expected.plannedAt))
    }
    for (const item of twice.keys()) this.#found.markItemFailed(kinds[item.section], item)
    for (const section of named) {
      if (this.#found.isHopeless()) break
      const once = (bySection.get(section) ?? []).filter((item) => !twice.has(item))
      await this.#section(kinds[section], once)
    }
    // What refers to others goes first.
    for (const section of named.toReversed()) {
      if (!this.#found.isHopeless()) await this.#deletions.deleteSection(kinds[section])
    }
    if (!this.#found.isHopeless()) await this.#deletions.retryBlocked()
    await this.#releases()
    await this.#owners.takeNamesBack(this.#nameChangesToTakeBack())
    await this.#keyLosses.finish()
    this.#found.showEnded()
    const { changes, ends, faults: found } = this.#found
    const count = changes.length + this.#deletions.ended.length
    if (count > maxChanges) {
      const message = `would make ${count} changes, and one apply makes at most ${maxChanges}: apply a part of the files first`
      this.#found.fault('body.document', message)
    }
    if (rolledBack) {
      conflicts.checkNoFaults(found)
      conflicts.checkNoConflicts(conflicts.endedRecords(ends, this.#deletions.ended))
    } else rules.checkNoFaults(found, this.#found.refusals)
    const about = { fingerprint: cipher.fingerprint, yieldIfDue: this.#yieldIfDue }
    const ended = ends.map(({ of, counts }) => rules.canonical([of, counts])).sort()
    const parts = {
      state,
      ends: cipher.fingerprint(rules.canonical([ended, this.#keyLosses.mark])),
      referred: cipher.fingerprint(rules.canonical(this.#resolvedDigest(named))),
    }
    const digest = await digestOf(request, changes, [parts.ends, parts.referred], about)
    const version = versionOf({ ...parts, digest })
    // What is refused was not tried, and what ends with it not counted: the version would be another.
    if (expected) rules.checkNothingRefused(changes)
    // What is below the objects has changed, or what they refer to, or the plan is not of these files.
    if (expected && expected.version !== version) {
      const referred = sections.filter((section) => this.#state.has(section) && !named.includes(section))
      const names = await this.#changedSince(referred, [], expected.plannedAt)
      throw rules.outdatedPlan(names.length > 0 ? names : movedBesides(expected.version, named, parts))
    }
    const totals = rules.totalsOf(this.#found.changes, this.#found.left.length)
    const notCompared = notComparedOf(request, items)
    const { renamedByHand } = this.#found
    return {
      set: request.set,
      version,
      changes: this.#found.changes,
      left: this.#found.left,
      totals,
      ...(notCompared.length > 0 && { notCompared }),
      ...(renamedByHand.length > 0 && { renamedByHand }),
    }
  }

  /** What is asked for: files, or a rollback. */
  get request(): ConfigurationRequest {
    return { ...this.#context.request, ...(this.#rollback && { document: this.#rollback.document }) }
  }

  /** What a rollback cannot bring back. */
  get lost(): readonly Lost[] {
    return this.#rollback?.lost ?? []
  }

  /** What was changed, with what is kept of its values. */
  get applied(): readonly AppliedChange[] {
    return this.#found.applied
  }

  /** What it changed of the names in files. */
  get nameChanges(): readonly NameChange[] {
    return this.#owners.nameChanges
  }

  /** Where the audit log says who did what a plan has found. */
  get trail(): AuditTrail {
    return { subjects: this.#found.subjects, missing: this.#missing }
  }

  /** @throws conflict when later changes stand on the apply */
  async #rollbackOf(applied: readonly AppliedChange[]): Promise<Rollback> {
    const { calls, on } = this.#context
    const { prune } = this.#context.request
    // What is in an organization that goes, or refers to what goes, stands in the way: of every kind that may be read.
    if (prune && applied.some(({ action }) => action === 'create'))
      for (const section of sections)
        if (!this.#state.has(section) && mayRead(calls, section, on.admitted))
          await this.#state.read(section, this.#yieldIfDue)
    const seesEnded = (section: Section) =>
      endingsShownTo(section).every((entry) => refusalOf(calls, entry, on.admitted) === undefined)
    const about = { prune, state: this.#state, owners: this.#owners, seesEnded }
    const { rollback, conflicts: found, unseen } = rollbackOf(applied, about)
    conflicts.checkNoConflicts(found, unseen)
    return rollback
  }

  async #releases(): Promise<void> {
    for (const section of sections) {
      if (!this.#rollback || !this.#state.has(section)) continue
      for (const stored of this.#state.all(section))
        if (this.#rollback.releases.has(stored.id)) await this.#adoption.release(kinds[section], stored)
    }
  }

  #nameChangesToTakeBack(): NameChange[] {
    const { nameChanges = [], calls, on } = this.#context
    return nameChanges.filter(({ section }) => mayChangeSome(calls, section, on.admitted))
  }

  /** The objects of the files. Names of those with faults are kept: who refers to them is not at fault as well. */
  async #items(
    named: readonly Section[],
    own: string | undefined,
    omitted: (section: Section, at: number) => string[],
  ): Promise<DesiredObject[]> {
    const items: DesiredObject[] = []
    for (const section of named) {
      for (const [at, object] of (this.request.document[section] ?? []).entries()) {
        const read = rules.readObject(section, at, object, omitted(section, at))
        if (Array.isArray(read)) {
          this.#found.addFaults(read)
          this.#found.markFailed(
            section,
            rules.orgSlugOf(section, object.org, own),
            object[kinds[section].key],
          )
        } else {
          const org = rules.orgSlugOf(section, read.org, own)
          items.push({ ...read, org, identity: this.#rollback?.identities.get(object) })
        }
        await this.#timeSlice.yieldIfDue()
      }
    }
    return items
  }

  /** Reads the sections, and those that they refer to as far as the caller may. @throws forbidden */
  async #read(named: readonly Section[]): Promise<void> {
    const { calls, on } = this.#context
    checkMayRead(calls, named, on.admitted)
    // Every user sees their organizations.
    await this.#state.read('organizations', this.#yieldIfDue)
    for (const section of sections) {
      const isNamed = named.includes(section)
      const isReferred = named.some((from) => kinds[from].fields.some(({ refersTo }) => refersTo === section))
      if (!isNamed && !(isReferred && mayRead(calls, section, on.admitted))) continue
      await this.#state.read(section, this.#yieldIfDue)
      await this.#owners.read(section, this.#state, this.#yieldIfDue)
      if (!isNamed) continue
      for (const { field, isRequested } of readableParts(
        calls,
        section,
        on.admitted,
        this.requestedValues(section),
      ))
        await this.#state.readPart(section, field, isRequested)
    }
  }

  /** Objects of the files, or of the apply that is rolled back, with the fields that they are about. */
  requestedValues(section: Section): readonly Values[] {
    const { rolledBack, request } = this.#context
    if (!rolledBack) return request.document[section] ?? []
    const ofSection = rolledBack.filter((one) => one.section === section)
    return ofSection.flatMap(({ before, after }) => [before ?? {}, after ?? {}])
  }

  /** Equal for two states of the sections that a plan cannot tell apart. */
  async #stateMark(named: readonly Section[]): Promise<StateMark> {
    const ofSections: string[] = []
    for (const section of named) {
      const marks: string[] = []
      for (const stored of this.#state.all(section)) {
        const owner = this.#owners.of(stored)
        const whose = this.#owners.isOwn(stored)
          ? ['this set', this.#owners.nameInFiles(stored)]
          : [owner?.set.name, owner?.set.isOfPartner]
        const { initial = [] } = kinds[section]
        const whole = Object.entries(this.#state.file(kinds[section], stored))
        // Files set `initial` fields at creation alone: later changes of them do not outdate a plan.
        const file = Object.fromEntries(whole.filter(([name]) => !initial.includes(name)))
        const text = rules.canonical([section, this.#state.org(stored), owner ? whose : null, file])
        marks.push(hash('sha256', text, 'hex'))
        await this.#timeSlice.yieldIfDue()
      }
      ofSections.push(sectionMarkOf(marks))
    }
    return stateMarkOf(ofSections)
  }

  /**
   * What was changed, made or deleted since a time, with who did it where the caller may read the audit log; of a section that
   * has moved, though nothing in it says when, its name.
   */
  async #changedSince(
    named: readonly Section[],
    differing: readonly Section[],
    time: Instant | undefined,
  ): Promise<string[]> {
    if (time === undefined) return [...differing]
    const { calls, on, scope: tenant } = this.#context
    const all = named.flatMap((section) => this.#state.all(section))
    const moved = all.filter((stored) => rules.changedAt(stored) > time)
    const { names, ofSections } = mayReadAudit(calls, on.admitted)
      ? await changesSince(
          this.#tx,
          { scope: 'scope' in on.admitted ? on.admitted.scope : tenant, tenant },
          { named, moved, missing: this.#missing, since: time, now: on.now, details: on.details },
        )
      : {
          names: moved.map((stored) => `${stored.section} "${stored.key}" (${rules.changedAt(stored)})`),
          ofSections: new Set(moved.map(({ section }) => section)),
        }
    return [...differing.filter((section) => !ofSections.has(section)), ...names]
  }

  async #section(kind: Kind, items: readonly DesiredObject[]): Promise<void> {
    const { ordered, cycles } = rules.itemsInOrder(kind, items)
    for (const item of cycles)
      this.#found.fault(item.path, 'is its own ancestor: change the parent of one of them')
    const placed: DesiredObjectInOrg[] = []
    for (const item of ordered) {
      const orgId = cycles.includes(item) ? undefined : this.#naming.organization(kind, item)
      if (typeof orgId === 'symbol' || orgId === undefined) this.#found.markItemFailed(kind, item)
      else placed.push({ item, orgId })
      await this.#timeSlice.yieldIfDue()
    }
    const matches = await this.#match(kind, placed)
    for (const { stored } of matches.values()) if (stored) this.#found.markDesired(stored.id)
    // Where one change allows another, as a new administrator that a former one goes, files may have them in any order.
    for (let waiting = placed; waiting.length > 0; ) {
      const failed: { one: DesiredObjectInOrg; failure: Failure }[] = []
      const { done } = this.#found
      for (const one of waiting) {
        if (this.#found.isHopeless()) return
        const mark = this.#found.mark()
        const match = matches.get(one.item)
        if (match) await this.#item(kind, one, match)
        else this.#found.markItemFailed(kind, one.item)
        const failure = this.#found.failureSince(mark, one.item)
        if (failure) failed.push({ one, failure })
        await this.#timeSlice.yieldIfDue()
      }
      if (failed.length === waiting.length && done === this.#found.done) break
      for (const { one, failure } of failed) this.#found.withdraw(kind, one.item, failure)
      waiting = failed.map(({ one }) => one)
    }
    for (const stored of this.#state.all(kind.section)) {
      const isLeft = !this.#rollback && !this.#found.isDesired(stored.id)
      if (isLeft && this.#naming.isReplaced(stored) && (await this.#adoption.mayChange(kind, stored)))
        await this.#owners.forgetName(stored)
      await this.#timeSlice.yieldIfDue()
    }
  }

  async #match(
    kind: Kind,
    placed: readonly DesiredObjectInOrg[],
  ): Promise<ReadonlyMap<DesiredObject, ObjectMatch>> {
    const { prune } = this.#context.request
    const yieldIfDue = this.#yieldIfDue
    if (!this.#rollback) return this.#naming.match(kind, placed, { prune, yieldIfDue })
    const renamed = placed.flatMap(({ item: { identity, key } }) => {
      const now = this.#state.get(kind.section, identity!.id)
      return now && now.key !== key ? [now.id] : []
    })
    const leaving = new Set([...renamed, ...(prune ? this.#rollback.deletions : [])])
    return this.#naming.identities(kind.section, placed, leaving)
  }

  async #item(kind: Kind, { item: named, orgId }: DesiredObjectInOrg, match: ObjectMatch): Promise<void> {
    const before = match.stored ?? this.#made.get(named)
    const found = before && this.#state.get(kind.section, before.id)
    const other = match.inTheWay && this.#state.get(kind.section, match.inTheWay.id)
    // It may have given up the name by now.
    const inTheWay = other?.key === named.key ? other : undefined
    const item = withPlaceholders(kind, named, found?.record)
    const references = this.#naming.references(kind, item, orgId)
    if (!references) return this.#found.markItemFailed(kind, item)
    this.#addResolved(item, orgId, references)
    const adopted = found && (await this.#adoption.adopt(kind, item, found))
    if (found && !adopted) return
    const refused = adopted?.refused ?? null
    const isNew = found === undefined || this.#made.has(named)
    if (isNew) this.#steps.checkNeeded(kind, item)
    if (inTheWay) await this.#deletions.deleteEarly(kind, inTheWay)
    const stored = found ?? (await this.#steps.create(kind, item, { orgId, inTheWay }, references))
    if (!stored) return
    if (!found) {
      this.#made.set(named, stored)
      if (item.identity) this.#naming.restore(item.identity.id, stored.id)
      this.#naming.note(named, orgId, stored)
    }
    const { faults } = this.#found.mark()
    await this.#steps.update(kind, item, { stored, isNew, inTheWay, refused }, references)
    if (this.#found.faults.length > faults) return
    // As it was before the first attempt.
    if (!isNew && refused === null && this.#owners.isNewName(match.stored!, item))
      await this.#noteName(kind, item, match.stored!)
  }

  /** An apply is of the same objects as its plan, whatever has their names by then. */
  #addResolved({ section, path }: DesiredObject, orgId: string | null, references: References): void {
    const lasting = (id: string | null) => (id === null || this.#state.isMade(id) ? null : id)
    const all = [...references].map(([name, ids]) => {
      const { refersTo } = kinds[section].fields.find((field) => field.name === name)!
      return [ids].flat().map((id) => {
        const stored = this.#state.get(refersTo!, id)
        if (stored) this.#referred.set(id, stored)
        return lasting(id)
      })
    })
    this.#resolvedIds.set(path, JSON.stringify([lasting(orgId), all]))
  }

  /** An organization has much that a reference does not depend on; what the files are about is in the state. */
  #resolvedDigest(named: readonly Section[]): unknown {
    // What is added is visited as well: a role has the permissions of those above it.
    for (const { section, record } of this.#referred.values()) {
      for (const { field, refersTo } of kinds[section].fields) {
        if (refersTo === undefined || !this.#state.has(refersTo)) continue
        for (const id of [record[field] ?? []].flat().map(String)) {
          const above = this.#state.get(refersTo, id)
          if (above && !this.#referred.has(id)) this.#referred.set(id, above)
        }
      }
    }
    const referred = [...this.#referred.values()].filter(
      ({ section }) => section !== 'organizations' && !named.includes(section),
    )
    const resolved = createHash('sha256')
    for (const one of [...this.#resolvedIds].sort(byPath)) resolved.update(JSON.stringify(one))
    return [resolved.digest('hex'), referred.map((one) => this.#state.file(kinds[one.section], one))]
  }

  /** Where somebody has given an object the name that it has in the files, nothing else of it may change. */
  async #noteName(kind: Kind, item: DesiredObject, stored: StoredObject): Promise<void> {
    const isFollowed = stored.key === item.key
    // A plan says it to anybody.
    const { isRehearsal } = this.#context.on
    if (isFollowed && !isRehearsal && !(await this.#adoption.mayChange(kind, stored))) return
    const nameInFiles = this.#owners.nameInFiles(stored)
    await this.#owners.noteName(stored, item)
    if (isFollowed && nameInFiles !== null) this.#found.followName(stored, nameInFiles)
  }
}

const byPath = ([one]: [string, string], [other]: [string, string]): number => (one < other ? -1 : 1)
