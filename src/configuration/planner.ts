import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { type Fault, invalid, Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Caller } from '../handler.ts'
import { inNestedTransaction } from '../storage/bisect-writes.ts'
import type { Db } from '../storage/open.ts'
import { type Change, type Kind, kinds, mostChanges, type Plan, type Section, sections } from './contract.ts'
import type { CallContext, InnerCalls } from './ports.ts'
import type { Item, Stored, Values, Wanted } from './rules.ts'
import * as rules from './rules.ts'
import { State } from './state.ts'
import * as store from './store.ts'

export type Planner = {
  calls: InnerCalls
  on: CallContext
  scope: Scope
  owner: store.SetOwner
  wanted: Wanted
  /** The set, where it is known already. */
  setId: string | undefined
}

/** How many objects are looked at before it is asked whether other requests wait. */
const atOnce = 100
/** Milliseconds after which other requests get their turn. */
const turnMs = 10
/** Milliseconds of a plan. On SQLite it holds the one writer, which gives up on it after ten seconds. */
const longestMs = 8000
/** Faults after which a plan ends: no more than fifty are listed. */
const mostFaults = 200

/** A reference to something that could not be made: what names it is not at fault. */
const blocked = Symbol('blocked')
/** A reference that leads nowhere; its fault is noted. */
const astray = Symbol('astray')

/**
 * Does everything that the files ask for in a transaction, through the endpoints of each kind, and says what that was. To
 * plan is to do the same and to roll the transaction back.
 */
export class Run {
  readonly #tx: Db
  readonly #with: Planner
  readonly #state: State
  readonly #changes: Change[] = []
  readonly #faults: Fault[] = []
  readonly #owned = new Map<Section, Map<string, store.Ownership>>()
  /** What the files have of each section. */
  readonly #kept = new Set<string>()
  /** Names of what is in the files and could not be made. */
  readonly #blocked = new Set<string>()
  #left: Plan['left'] = []
  #on: CallContext
  /** What ends with what is deleted, also where the caller may not see it. */
  readonly #ends: Record<string, number>[] = []
  readonly #begun = performance.now()
  #turn = this.#begun

  constructor(tx: Db, planner: Planner) {
    this.#tx = tx
    this.#with = planner
    this.#on = planner.on
    this.#state = new State(tx, planner.scope)
  }

  /** `expected`: of the plan that is applied. @throws invalid_request with every fault, conflict */
  async plan(expected?: {
    version: string
    plannedAt?: Instant | undefined
  }): Promise<Omit<Plan, 'plannedAt'>> {
    const { wanted } = this.#with
    const { named, faults } = rules.sectionsOf(wanted.document)
    const items = await this.#items(named)
    this.#faults.push(...faults, ...rules.duplicateFaults(items))
    await this.#read(named)
    const state = await this.#stateMark(named)
    if (expected && !expected.version.startsWith(state))
      throw rules.moved(this.#movedSince(named, expected.plannedAt))
    for (const section of named) {
      if (this.#isHopeless()) break
      const kind = kinds[section]
      const own = items.filter((item) => item.section === section)
      const { ordered, cycles } = rules.itemsInOrder(kind, own)
      for (const item of cycles) {
        this.#fault(item.path, 'is above itself')
        this.#block(kind, item)
      }
      for (const item of ordered) {
        if (cycles.includes(item)) continue
        if (this.#isHopeless()) break
        await this.#item(kind, item)
        await this.#breathe()
      }
    }
    // What refers to others goes first.
    for (const section of named.toReversed()) {
      if (!this.#isHopeless()) await this.#deletions(kinds[section])
    }
    if (this.#changes.length > mostChanges) {
      const message = `would make ${this.#changes.length} changes, and one apply makes at most ${mostChanges}: apply a part of the files first`
      this.#faults.push({ path: 'body.document', message })
    }
    rules.checkNoFaults(this.#faults)
    const version = state + rules.digestOf(wanted, this.#changes, this.#ends)
    // What is below the objects has changed, or the plan is not of these files.
    if (expected && expected.version !== version) throw rules.moved([])
    const totals = rules.totalsOf(this.#changes, this.#left.length)
    return { set: wanted.set, version, changes: this.#changes, left: this.#left, totals }
  }

  /** The objects of the files. Names of those with faults are kept: who refers to them is not at fault as well. */
  async #items(named: readonly Section[]): Promise<Item[]> {
    const items: Item[] = []
    for (const section of named) {
      for (const [at, object] of this.#with.wanted.document[section]!.entries()) {
        const read = rules.readObject(section, at, object)
        if (Array.isArray(read)) {
          this.#faults.push(...read)
          this.#blocked.add(rules.labelOf(section, object[kinds[section].key]))
        } else items.push(read)
        if (at % atOnce === 0) await this.#breathe()
      }
    }
    return items
  }

  /**
   * Other requests get their turn: on SQLite this transaction runs in the thread that serves them.
   * @throws invalid_request when the plan takes too long
   */
  async #breathe(): Promise<void> {
    const now = performance.now()
    if (now - this.#begun > longestMs) {
      const message =
        'this is too much for one plan: name an organization with orgId, or apply a part of the files first'
      throw invalid([{ path: 'body.document', message }], message)
    }
    if (now - this.#turn < turnMs) return
    await setImmediate()
    this.#turn = performance.now()
  }

  #isHopeless(): boolean {
    return this.#faults.length >= mostFaults
  }

  /** Reads the sections, and those that they refer to as far as the caller may. @throws forbidden */
  async #read(named: readonly Section[]): Promise<void> {
    const { scope } = this.#with
    this.#checkMayRead(named)
    // Every user sees their organizations.
    await this.#state.read('organizations')
    for (const section of sections) {
      const isNamed = named.includes(section)
      const isReferred = named.some((from) => kinds[from].fields.some(({ refersTo }) => refersTo === section))
      if (!isNamed && !(isReferred && this.#mayRead(section))) continue
      await this.#state.read(section)
      this.#owned.set(section, await store.listOwned(this.#tx, scope, section))
    }
  }

  /** A plan shows nothing that the lists do not show the caller. @throws forbidden */
  #checkMayRead(named: readonly Section[]): void {
    const refused = named.flatMap((section) => {
      const why = refusalOf(this.#with.calls, kinds[section].list, this.#on.admitted)
      return why === undefined ? [] : [`You may not read ${section}: ${why}`]
    })
    if (refused.length > 0) throw new Problem('forbidden', refused.join('; '))
  }

  #mayRead(section: Section): boolean {
    return refusalOf(this.#with.calls, kinds[section].list, this.#on.admitted) === undefined
  }

  /** Equal for two states of the sections that a plan cannot tell apart. */
  async #stateMark(named: readonly Section[]): Promise<string> {
    const { setId } = this.#with
    const marks: string[] = []
    for (const section of named) {
      for (const [at, stored] of this.#state.all(section).entries()) {
        const owner = this.#ownerOf(stored)
        const whose = owner?.setId === setId ? 'this set' : [owner?.set, owner?.isOfPartner]
        const file = this.#state.file(kinds[section], stored)
        const text = rules.canonical([section, this.#state.org(stored), owner ? whose : null, file])
        marks.push(hash('sha256', text, 'hex'))
        if (at % atOnce === 0) await this.#breathe()
      }
    }
    return hash('sha256', marks.sort().join(), 'hex').slice(0, 32)
  }

  /** What was changed or made since a time; what was deleted has left no trace here. */
  #movedSince(named: readonly Section[], time: Instant | undefined): string[] {
    if (time === undefined) return []
    const all = named.flatMap((section) => this.#state.all(section))
    const moved = all.filter(({ record }) => String(record.updatedAt) > time)
    return moved.map((stored) => `${stored.section} "${stored.key}" (${String(stored.record.updatedAt)})`)
  }

  #ownerOf({ section, id }: Stored): store.Ownership | undefined {
    return this.#owned.get(section)?.get(id)
  }

  #fault(path: string, message: string): void {
    this.#faults.push({ path, message })
  }

  async #item(kind: Kind, item: Item): Promise<void> {
    const orgId = this.#organization(kind, item)
    if (typeof orgId === 'symbol') return this.#block(kind, item)
    const found = this.#find(kind, item, orgId)
    if (typeof found === 'symbol') return this.#block(kind, item)
    if (found) this.#kept.add(found.id)
    const references = this.#references(kind, item, orgId)
    if (!references) return this.#block(kind, item)
    if (found && !(await this.#adopted(kind, item, found))) return
    const made = found ?? (await this.#create(kind, item, orgId, references))
    if (made) await this.#update(kind, item, made, references)
  }

  #block(kind: Kind, item: Item): void {
    this.#blocked.add(rules.labelOf(kind.section, item.key))
  }

  /** null: it belongs to the partner. */
  #organization(kind: Kind, { org, path }: Item): string | null | symbol {
    const { orgId } = this.#with.owner
    if (kind.owner === 'partner') return null
    if (org === undefined) {
      if (orgId !== null || kind.owner === 'either') return orgId
      this.#fault(`${path}.org`, 'is required')
      return astray
    }
    const [found] = this.#state.named('organizations', null, org)
    if (found) return found.id
    if (this.#blocked.has(rules.labelOf('organizations', org))) return blocked
    this.#fault(`${path}.org`, `there is no organization "${org}" that you can see`)
    return astray
  }

  #find(kind: Kind, { key, renamedFrom, path }: Item, orgId: string | null): Stored | undefined | symbol {
    const { section } = kind
    const found = this.#ownOf(this.#state.named(section, orgId, key))
    if (found.length > 1) {
      this.#fault(path, `there are ${found.length} of ${section} named "${key}": rename all but one first`)
      return astray
    }
    const former = renamedFrom === undefined ? [] : this.#state.named(section, orgId, renamedFrom)
    if (former.length === 0) return found[0]
    if (found.length > 0) {
      this.#fault(
        `${path}.renamedFrom`,
        `both "${renamedFrom}" and "${key}" exist: delete or rename one first`,
      )
      return astray
    }
    if (former.length > 1) {
      this.#fault(`${path}.renamedFrom`, `there are ${former.length} of ${section} named "${renamedFrom}"`)
      return astray
    }
    return former[0]
  }

  /** Of several of one name the one that the set has: otherwise whoever makes another would stop the set. */
  #ownOf(found: Stored[]): Stored[] {
    const { setId } = this.#with
    if (found.length < 2 || setId === undefined) return found
    const own = found.filter((one) => this.#ownerOf(one)?.setId === setId)
    return own.length === 1 ? own : found
  }

  /** Ids of what the item names; undefined where something is missing. */
  #references(kind: Kind, item: Item, orgId: string | null): Map<string, string> | undefined {
    const ids = new Map<string, string>()
    let isWhole = true
    for (const { name, refersTo } of kind.fields) {
      const value = item.values[name]
      if (refersTo === undefined || typeof value !== 'string') continue
      const id = this.#reference(`${item.path}.${name}`, refersTo, orgId, value)
      if (typeof id === 'string') ids.set(name, id)
      else isWhole = false
    }
    return isWhole ? ids : undefined
  }

  #reference(path: string, section: Section, orgId: string | null, name: string): string | symbol {
    if (!this.#state.has(section)) {
      this.#fault(path, `names one of ${section}, which you may not read`)
      return astray
    }
    const found = this.#ownOf(this.#state.referred(section, orgId, name))
    if (found.length === 1) return found[0]!.id
    if (found.length === 0 && this.#blocked.has(rules.labelOf(section, name))) return blocked
    const count = found.length === 0 ? 'no' : String(found.length)
    this.#fault(path, `there is ${count} "${name}" among the ${section} of its organization`)
    return astray
  }

  /** Whether an object that exists belongs to the set, or does from now on. */
  async #adopted(kind: Kind, item: Item, found: Stored): Promise<boolean> {
    const { wanted, setId, calls } = this.#with
    const owner = this.#ownerOf(found)
    if (owner && owner.setId === setId) return true
    if (owner) {
      const whose = owner.isOfPartner && this.#with.owner.orgId !== null ? ' of the partner' : ''
      this.#fault(item.path, `belongs to the set "${owner.set}"${whose}: leave it out here, or there`)
      return false
    }
    if (!wanted.adopt) {
      this.#fault(item.path, 'exists and belongs to no set: --adopt takes it over')
      return false
    }
    const refused = await this.#refusal(
      kind.update,
      async (call) => {
        await this.#judge(kind, found, call)
        await calls.record(this.#tx, this.#on, {
          action: 'config.adopt',
          resource: kind.resource,
          orgId: found.orgId,
          id: found.id,
          name: found.key,
        })
        await this.#own(found)
      },
      item.path,
      kind,
    )
    if (refused === undefined) return false
    this.#add(found, { action: 'adopt', before: null, after: null, ...refused })
    return refused.refused === null
  }

  /** Lets the endpoint judge a change that changes nothing: whoever may not change an object may not take it over. */
  async #judge(kind: Kind, found: Stored, call: (input: RawInput) => Promise<Values>): Promise<void> {
    const undone = new Error('undone')
    const body = this.#body(kind, this.#state.file(kind, found), new Map(), [kind.key])
    try {
      await inNestedTransaction(this.#tx, async () => {
        await call({ params: { id: found.id }, body })
        throw undone
      })
    } catch (error) {
      if (error !== undone) throw error
    }
  }

  async #own({ section, id, orgId }: Stored): Promise<void> {
    const { setId, owner } = this.#with
    // A plan of a set that does not exist yet owns nothing.
    if (setId !== undefined)
      await store.own(this.#tx, setId, { section, id, orgId, partnerId: owner.partnerId })
  }

  async #create(
    kind: Kind,
    item: Item,
    orgId: string | null,
    references: ReadonlyMap<string, string>,
  ): Promise<Stored | undefined> {
    const made = kind.fields.filter(({ isMade }) => isMade).map(({ name }) => name)
    const body = { ...this.#body(kind, item.values, references, made), ...(orgId !== null && { orgId }) }
    const { after } = rules.shownDifference(null, onlyOf(item.values, made))
    let reply: Values | undefined
    const refused = await this.#refusal(
      kind.create,
      async (call) => {
        reply = await call({ body })
      },
      item.path,
      kind,
    )
    const line = { section: kind.section, orgId, key: item.key, id: null }
    if (refused) this.#add(line, { action: 'create', before: null, after, ...refused })
    if (!reply) {
      this.#block(kind, item)
      return undefined
    }
    const stored = this.#state.put(kind.section, reply)
    if (!stored) throw new Error(`${kind.section} "${item.key}" was made and is not visible`)
    this.#kept.add(stored.id)
    this.#widen(stored)
    await this.#own(stored)
    return stored
  }

  /** A member who sees selected organizations also sees one that they make. */
  #widen({ section, id }: Stored): void {
    const { caller } = this.#on
    if (section !== 'organizations' || !('scope' in caller)) return
    const { scope } = caller
    if (scope.kind !== 'partner' || scope.orgs === 'all') return
    const wider = { ...caller, scope: { ...scope, orgs: [...scope.orgs, id] } }
    this.#on = { ...this.#on, admitted: wider, caller: wider }
  }

  async #update(
    kind: Kind,
    item: Item,
    stored: Stored,
    references: ReadonlyMap<string, string>,
  ): Promise<void> {
    const present = this.#state.file(kind, stored)
    const changed = rules.differing(kind, present, item.values)
    for (const { name, field } of kind.fields) {
      // Ids decide: an object may have the name of another.
      const id = references.get(name)
      if (id !== undefined && id !== stored.record[field]) changed[name] = item.values[name]
    }
    const names = Object.keys(changed)
    if (names.length === 0) return
    const fixed = kind.fields.filter(({ name, isChanged }) => !isChanged && names.includes(name))
    for (const { name } of fixed)
      this.#fault(`${item.path}.${name}`, 'cannot be changed: delete it and create another')
    if (fixed.length > 0) return
    const body = this.#body(kind, item.values, references, names)
    const shown = rules.shownDifference(onlyOf(present, names), changed)
    let reply: Values | undefined
    const refused = await this.#refusal(
      kind.update,
      async (call) => {
        reply = await call({ params: { id: stored.id }, body })
      },
      item.path,
      kind,
    )
    if (!refused) return
    const renamedFrom = item.key === stored.key ? null : stored.key
    this.#add({ ...stored, key: item.key }, { action: 'update', ...shown, renamedFrom, ...refused })
    if (reply) this.#state.put(kind.section, reply)
  }

  #body(
    { fields, spelled }: Kind,
    values: Values,
    references: ReadonlyMap<string, string>,
    names: readonly string[],
  ): Values {
    const said = fields.filter(({ name }) => names.includes(name) && values[name] !== undefined)
    return Object.fromEntries(
      said.map(({ name, field }) => [
        field,
        references.get(name) ?? spelled[field]?.toBody(values[name]) ?? values[name],
      ]),
    )
  }

  async #deletions(kind: Kind): Promise<void> {
    const { section } = kind
    const { setId, wanted } = this.#with
    const mine = this.#state.all(section).filter((stored) => this.#ownerOf(stored)?.setId === setId)
    if (setId === undefined || mine.length === 0) return
    const gone = mine.filter(({ id }) => !this.#kept.has(id))
    if (!wanted.prune) {
      this.#left.push(...gone.map((stored) => ({ section, org: this.#state.org(stored), name: stored.key })))
      return
    }
    const count = { deletions: gone.length, owned: mine.length, limit: wanted.pruneLimit }
    const excess = rules.pruneRefusal(section, count)
    if (excess !== undefined && !this.#on.isRehearsal) return this.#fault('body.pruneLimit', excess)
    for (const stored of rules.childrenFirst(kind, gone)) {
      await this.#delete(kind, stored, excess)
      await this.#breathe()
    }
  }

  async #delete(kind: Kind, stored: Stored, excess: string | undefined): Promise<void> {
    const path = `body.document.${kind.section}`
    const before = rules.shownDifference(this.#state.file(kind, stored), null).before
    const params = { id: stored.id }
    const { effect } = kind.remove
    let ends: Record<string, number> | null = null
    const refused = await this.#refusal(
      kind.remove,
      async (call) => {
        if (effect) {
          const all = (await this.#effect(effect, { params })) as Record<string, number>
          this.#ends.push(all)
          // As a plan needs no permission to delete, it shows the effect only to those who may ask for it.
          if (refusalOf(this.#with.calls, effect, this.#on.admitted) === undefined) ends = all
        }
        await call({ params })
      },
      path,
      kind,
      `cannot delete "${stored.key}": `,
    )
    if (!refused) return
    this.#add(stored, { action: 'delete', before, after: null, ends, refused: excess ?? refused.refused })
    if (refused.refused === null) this.#state.remove(kind.section, stored.id)
  }

  /** What ends with a record, for the version of the plan, whoever may see it. */
  #effect(entry: Endpoint, input: RawInput): Promise<Values> {
    return this.#with.calls.call(this.#tx, { ...this.#on, isRehearsal: true }, entry, input)
  }

  #call(entry: Endpoint, input: RawInput): Promise<Values> {
    return this.#with.calls.call(this.#tx, this.#on, entry, input)
  }

  /**
   * Does one step. The answer says why it is refused, if it is; there is none when the files are at fault. A plan goes on
   * after either, so that everything comes at once: what the step changed before it failed is rolled back in any case.
   */
  async #refusal(
    entry: Endpoint,
    step: (call: (input: RawInput) => Promise<Values>) => Promise<void>,
    path: string,
    kind: Kind,
    prefix = '',
  ): Promise<{ refused: string | null } | undefined> {
    if (this.#changes.length > mostChanges) return { refused: null }
    // A plan says what would be, whoever asks: its transaction is rolled back.
    const refused = refusalOf(this.#with.calls, entry, this.#on.admitted) ?? null
    try {
      if (refused !== null && !this.#on.isRehearsal) return { refused }
      await inNestedTransaction(this.#tx, () => step((input) => this.#call(entry, input)))
      return { refused }
    } catch (error) {
      if (!(error instanceof Problem)) throw error
      // Who may not do it learns no more than that: names that are taken elsewhere, quotas and counts are not theirs to know.
      if (refused !== null && error.code !== 'invalid_request') return { refused }
      if (rules.isRefusal(error)) return { refused: error.message }
      for (const fault of rules.faultsOf(error, kind, path))
        this.#fault(fault.path, `${prefix}${fault.message}`)
      return undefined
    }
  }

  #add(
    about: { section: Section; orgId: string | null; key: string; id: string | null },
    change: Pick<Change, 'action' | 'before' | 'after' | 'refused'> & Partial<Change>,
  ): void {
    const { section, key, id } = about
    const org = this.#state.org(about)
    this.#changes.push({ section, org, name: key, id, renamedFrom: null, ends: null, ...change })
  }
}

/** Why a caller may not call an endpoint; undefined: they may. */
export function refusalOf(calls: InnerCalls, entry: Endpoint, caller: Caller): string | undefined {
  try {
    calls.check(entry, caller)
    return undefined
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    return error.code === 'unauthenticated' ? 'this is not open to API keys' : error.message
  }
}

const onlyOf = (values: Values, names: readonly string[]): Values =>
  Object.fromEntries(Object.entries(values).filter(([name]) => names.includes(name)))
