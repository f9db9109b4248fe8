import { pagesById } from '../core/page.ts'
import type { Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { kinds, type Section } from './contract.ts'
import { placeOf } from './matching.ts'
import type { PlanContext } from './plan-context.ts'
import { type DesiredObject, type MissingObject, namespaceOf, type StoredObject } from './rules.ts'
import type { State } from './state.ts'
import * as store from './store.ts'

/** The owned objects of a section, of every set. */
export const ownedPages = (db: Db, scope: Scope, section: Section) =>
  pagesById(2000, (page) => store.listOwned(db, scope, section, page))

/** Which set owns each object of the sections that were read. */
export class Owners {
  readonly #tx: Db
  readonly #context: PlanContext
  readonly #owned = new Map<Section, Map<string, store.Ownership>>()
  readonly #nameChanges: store.NameChange[] = []
  #otherSets: ReadonlyMap<string, ReadonlySet<string>> | undefined

  constructor(tx: Db, context: PlanContext) {
    this.#tx = tx
    this.#context = context
  }

  /** After the section was read: of what is there, the ids are kept once. */
  async read(section: Section, state: State, yieldIfDue: () => Promise<void>): Promise<void> {
    const owned = new Map<string, store.Ownership>()
    this.#owned.set(section, owned)
    for await (const found of ownedPages(this.#tx, this.#context.scope, section)) {
      for (const { id, ownership } of found) {
        const stored = state.get(section, id)
        if (stored) owned.set(stored.id, { ...ownership, orgId: stored.orgId })
        else owned.set(id, ownership)
      }
      await yieldIfDue()
    }
  }

  of({ section, id }: StoredObject): store.Ownership | undefined {
    return this.#owned.get(section)?.get(id)
  }

  /** Whether the set that is applied owns it. */
  isOwn(stored: StoredObject): boolean {
    const { setId } = this.#context
    return setId !== undefined && this.of(stored)?.set.id === setId
  }

  /** What the files of the set called it before they renamed it. */
  formerNameOf(stored: StoredObject): string | null {
    return this.isOwn(stored) ? this.of(stored)!.renamedFrom : null
  }

  /** What the files of the set called an object last; null: the set does not own it, or no file called it anything. */
  nameInFiles(stored: StoredObject): string | null {
    if (!this.isOwn(stored)) return null
    return isRenamable(stored.section) ? this.of(stored)!.name : stored.key
  }

  /** What this apply has changed of the names in files. */
  get nameChanges(): readonly store.NameChange[] {
    return this.#nameChanges
  }

  /** Objects of the set that exist no more: somebody has deleted them since the last apply. */
  missing(section: Section, state: State): MissingObject[] {
    const owned = [...(this.#owned.get(section) ?? [])]
    return owned.flatMap(([id, { set, orgId, name }]) =>
      set.id === this.#context.setId && state.get(section, id) === undefined
        ? [{ section, id, orgId, nameInFiles: name }]
        : [],
    )
  }

  /** Names of other sets of the partner that have something in an organization. Its own sets go with it. */
  async otherSetsIn({ id }: StoredObject): Promise<readonly string[]> {
    const { scope, setId, on } = this.#context
    this.#otherSets ??= await store.listOtherSets(this.#tx, scope, setId, on.now)
    return [...(this.#otherSets.get(id) ?? [])].sort()
  }

  /** Of several of one name the one that the set has: otherwise whoever makes another would stop the set. */
  ownOf(found: StoredObject[]): StoredObject[] {
    if (found.length < 2) return found
    const own = found.filter((one) => this.isOwn(one))
    return own.length === 1 ? own : found
  }

  async disown({ id }: StoredObject): Promise<void> {
    const { setId } = this.#context
    if (setId !== undefined) await store.disown(this.#tx, setId, id)
  }

  /** `renamedFrom`: what its files say that it was called before. */
  async own(
    { section, id, orgId }: StoredObject,
    { key, renamedFrom, identity }: DesiredObject,
  ): Promise<void> {
    const { setId, owner } = this.#context
    const called = identity ? { name: identity.nameInFiles ?? key } : { name: key, renamedFrom }
    // A plan of a set that does not exist yet owns nothing.
    if (setId !== undefined)
      await store.own(this.#tx, setId, {
        section,
        id,
        orgId,
        partnerId: owner.partnerId,
        name: null,
        ...(isRenamable(section) && called),
      })
  }

  /** Whether the files call an object otherwise than at the last apply. What a rollback finds, see takeNamesBack. */
  isNewName(stored: StoredObject, { key, identity }: DesiredObject): boolean {
    const owned = this.of(stored)
    return !identity && owned !== undefined && owned.name !== key && isRenamable(stored.section)
  }

  /** What the files call an object from now on. A rename is done once: the file may go on to say it. */
  async noteName(stored: StoredObject, { key, renamedFrom }: DesiredObject): Promise<void> {
    await this.#changeName(stored, { name: key, renamedFrom: renamedFrom ?? null })
  }

  /** No file calls an object of the set as before any more: it goes by the name that somebody has given it. */
  async forgetName(stored: StoredObject): Promise<void> {
    await this.#changeName(stored, { name: null, renamedFrom: this.formerNameOf(stored) })
  }

  async #changeName(stored: StoredObject, after: store.NameInFiles): Promise<void> {
    const { setId } = this.#context
    if (setId === undefined) return
    const { name, renamedFrom } = this.of(stored)!
    await store.noteName(this.#tx, setId, stored.id, after)
    const { section, id } = stored
    this.#nameChanges.push({ section, id, orgId: namespaceOf(stored), before: { name, renamedFrom }, after })
  }

  /**
   * Undoes what an apply changed of names: what it renamed is renamed again by the files. Not in a section where files have
   * called something else so since.
   */
  async takeNamesBack(changes: readonly store.NameChange[]): Promise<void> {
    const { setId } = this.#context
    if (setId === undefined) return
    const back: store.NameChange[] = []
    for (const change of changes) if (await store.takeNameBack(this.#tx, setId, change)) back.push(change)
    if (back.length === 0) return
    const shared = new Set((await store.sharedNames(this.#tx, setId)).map(placeOfName))
    const isShared = ({ before, ...place }: store.NameChange) =>
      shared.has(placeOfName({ ...place, ...before }))
    const kept = new Set(back.filter(isShared).map(({ section }) => section))
    for (const change of back) {
      const { section, id, before, after } = change
      if (kept.has(section)) await store.noteName(this.#tx, setId, id, after)
      else this.#nameChanges.push({ ...change, before: after, after: before })
    }
  }
}

const placeOfName = ({
  section,
  orgId,
  name,
}: {
  section: Section
  orgId: string | null
  name: string | null
}) => `${section} ${placeOf(orgId, name ?? '')}`

const isRenamable = (section: Section): boolean =>
  kinds[section].fields.some(({ name, isChanged }) => isChanged && name === kinds[section].key)
