import { defaultPolicy, type RetentionPolicy, toAuditedPolicy } from '../audit/retention/rules.ts'
import { listPolicies } from '../audit/retention/store.ts'
import { chainOf } from '../audit/rules.ts'
import type { Cipher } from '../core/cipher.ts'
import { invalid } from '../core/errors.ts'
import { type IdPage, pagesById } from '../core/page.ts'
import { pairOf } from '../core/permissions.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { listUsableApiKeysById } from '../credentials/api-keys/store.ts'
import { listLiveEnrollmentKeysById } from '../credentials/enrollment-keys/store.ts'
import { listFiltersById } from '../filters/saved/store.ts'
import { listGroupSettings } from '../groups/store.ts'
import { listVisibleRoles } from '../identity/roles/store.ts'
import type { Tenant } from '../identity/rules.ts'
import { findMember, listAllMembers, type Member } from '../identity/users/members.ts'
import { listWholeScripts } from '../scripts/store.ts'
import { type ProviderRecord, redactProvider } from '../sso/rules.ts'
import { getProvider, listProviderRecords } from '../sso/store.ts'
import type { Db } from '../storage/open.ts'
import { getPartner, listOrgsById, listSitesById } from '../tenancy/store.ts'
import { listTrustPoliciesById } from '../trust/store.ts'
import { hiddenValue } from '../webhooks/contract.ts'
import type { WebhookRecord } from '../webhooks/rules.ts'
import { getWebhook, listWebhookRecords } from '../webhooks/store.ts'
import { type Kind, kinds, type Section } from './contract.ts'
import { guarded, namespaceOf, type StoredObject, toFile, type Values } from './rules.ts'
import type { SetOwner } from './store.ts'

type On = { scope: Scope; cipher: Cipher; owner: SetOwner; now: Instant }
/** What an endpoint has said of an object that is new, or was `stored` before. */
type Settled = { reply: Values; orgId: string | null; stored?: StoredObject | undefined }

/** A field that an endpoint of its own shows. */
type SeparateField = { field: string; isRequested: boolean; unchanged(id: string): unknown }
type Reader = (db: Db, scope: Scope, page: IdPage, on: On) => Promise<readonly { id: string }[]>

/** A secret that no key of the service opens gets a value that no file has, so that a plan sets it again. */
const comparable = (webhook: WebhookRecord) => ({
  ...webhook,
  ...(webhook.unreadable.secret !== undefined && { secret: hiddenValue }),
  ...(webhook.unreadable.headers !== undefined && { headers: [{ key: hiddenValue, value: hiddenValue }] }),
})

const withSecret = (provider: ProviderRecord) => ({
  ...redactProvider(provider),
  clientSecret: provider.unreadableSecret === null ? provider.clientSecret : hiddenValue,
})

/** The times of a person say nothing about their membership. */
const dated = (member: Member) => ({ ...member, updatedAt: member.createdAt })

/** The records of a section that the caller may see, as its endpoints return them. */
const readers: Readonly<Record<Section, Reader>> = {
  partners: async (db, scope) => (scope.kind === 'partner' ? [await getPartner(db, scope.partnerId)] : []),
  organizations: listOrgsById,
  sites: listSitesById,
  roles: async (db, scope, page) =>
    (await listVisibleRoles(db, scope, page)).map((role) => ({
      ...role,
      permissions: role.permissions.map(pairOf),
    })),
  filters: listFiltersById,
  deviceGroups: listGroupSettings,
  scripts: listWholeScripts,
  memberships: async (db, scope, page) => (await listAllMembers(db, scope, page)).map(dated),
  webhooks: async (db, scope, page, { cipher }) =>
    (await listWebhookRecords(db, cipher, scope, page)).map(comparable),
  trustPolicies: listTrustPoliciesById,
  ssoProviders: async (db, scope, page, { cipher }) =>
    (await listProviderRecords(db, cipher, scope, page)).map(withSecret),
  // Ended ones stay a while, and are nobody's configuration.
  apiKeys: (db, scope, page, { now }) => listUsableApiKeysById(db, scope, page, now),
  enrollmentKeys: (db, scope, page, { now }) => listLiveEnrollmentKeysById(db, scope, page, now),
}

/** One record, where the replies of its endpoints do not have all of it. */
const rereaders: Partial<Record<Section, (db: Db, on: On, made: Settled) => Promise<object | undefined>>> = {
  // The retention of its audit log has a reply of its own.
  organizations: async (_, __, { reply, stored }) =>
    reply.retentionDays === undefined
      ? reply
      : { ...stored?.record, auditRetention: toAuditedPolicy(reply as RetentionPolicy) },
  async memberships(db, { scope, owner }, { reply, orgId, stored }) {
    const { partnerId } = owner
    const tenant: Tenant = orgId === null ? { kind: 'partner', partnerId } : { kind: 'organization', orgId }
    const member = await findMember(db, scope, String(stored?.record.userId ?? reply.id), tenant)
    return member && dated(member)
  },
  ssoProviders: async (db, { scope, cipher }, { reply: { data } }) =>
    withSecret(await getProvider(db, cipher, scope, String((data as Values).id))),
  webhooks: async (db, { scope, cipher }, { reply: { id } }) =>
    comparable((await getWebhook(db, cipher, scope, String(id))).webhook),
}

/** Fields that an endpoint of their own shows, by the ids of their objects. */
const partReaders: Readonly<Record<string, (db: Db, scope: Scope) => Promise<(id: string) => unknown>>> = {
  async auditRetention(db, scope) {
    const policies = await listPolicies(db, scope)
    return (id) => toAuditedPolicy(policies.get(chainOf(id)) ?? defaultPolicy)
  },
}

/** Of one plan: both what it holds in memory and how long its transaction lasts. */
const bounds = { objects: 20_000, characters: 64 * 1024 * 1024 }
/** Rows of one query: SQLite goes through all organizations of a partner for each. */
const rows = 2000
/** A content has up to a million characters: to read and to compare these takes some milliseconds. Secrets are decrypted. */
const rowsOf: Partial<Record<Section, number>> = { scripts: 8, webhooks: 500, ssoProviders: 100 }

/** Scripts of the service, and those of the partner for an organization: visible, and of somebody else. */
const isForeign = (section: Section, scope: Scope, record: Values): boolean =>
  section === 'scripts' &&
  (record.isSystem === true || (scope.kind === 'organization' && record.orgId === null))

/** What the sections of a tenant contain, while a plan goes through them. */
export class State {
  readonly #db: Db
  #on: On
  readonly #sections = new Map<Section, Map<string, StoredObject>>()
  /** By name. More than one where nothing keeps names apart. */
  readonly #byName = new Map<string, StoredObject[]>()
  /** Ids of what was made meanwhile. */
  readonly #made = new Set<string>()
  /** Ids of what was refused to the caller; and of those among them that a plan could not make or change either. */
  readonly #refused = new Set<string>()
  readonly #undone = new Set<string>()
  /** Ids of what refused changes and deletions let go; and of what is still referred to, as these are undone. */
  readonly #dereferenced = new Set<string>()
  readonly #stillReferred = new Set<string>()
  /** Ids of what gives up its name: another object has it already. */
  readonly #aside = new Set<string>()
  #characters = 0
  /** Fields that an endpoint of their own shows, and what they are of an object that was not changed. */
  readonly #parts = new Map<Section, SeparateField[]>()

  constructor(db: Db, on: On) {
    this.#db = db
    this.#on = on
  }

  /** Reads a section, unless it was read before. @throws invalid_request when there is too much of it */
  async read(section: Section, yieldIfDue: () => Promise<void>): Promise<void> {
    if (this.#sections.has(section)) return
    this.#sections.set(section, new Map())
    const pages = pagesById(rowsOf[section] ?? rows, (page) =>
      readers[section](this.#db, this.#on.scope, page, this.#on),
    )
    for await (const found of pages) {
      for (const record of found) {
        await yieldIfDue()
        this.#check(section, record)
        this.put(section, record as Values)
      }
    }
  }

  /** Reads a field of a section that was read. `isRequested`: files name it, and a plan is about it. */
  async readPart(section: Section, field: string, isRequested: boolean): Promise<void> {
    const unchanged = await partReaders[field]!(this.#db, this.#on.scope)
    this.#parts.set(section, [...(this.#parts.get(section) ?? []), { field, isRequested, unchanged }])
    for (const stored of this.#sections.get(section)!.values()) stored.record[field] = unchanged(stored.id)
  }

  #check(section: Section, record: object): void {
    this.#characters += JSON.stringify(record).length
    const count = this.#sections.get(section)!.size
    if (count < bounds.objects && this.#characters < bounds.characters) return
    const message = `there are too many ${section} for one plan: name an organization with orgId, or leave the section out`
    throw invalid([{ path: `body.document.${section}`, message }], message)
  }

  /** What is made within an organization that the caller has just made is in sight as well. */
  widen(scope: Scope): void {
    this.#on = { ...this.#on, scope }
  }

  has(section: Section): boolean {
    return this.#sections.has(section)
  }

  /** Adds what an endpoint has made, or replaces it by what it has become. */
  async settle(section: Section, of: Settled): Promise<StoredObject | undefined> {
    // As it is by now: several endpoints may change one object.
    const about = { ...of, stored: of.stored && (this.get(section, of.stored.id) ?? of.stored) }
    const { [section]: reread } = rereaders
    const within = kinds[section].reply
    const plain = within === undefined ? about.reply : (about.reply[within] as Values)
    const record = reread ? await reread(this.#db, this.#on, about) : plain
    const settled = record && this.put(section, this.#withParts(section, record as Values, about.stored))
    if (settled && !about.stored) this.#made.add(settled.id)
    return settled
  }

  /** Whether an object was made meanwhile, and has another id each time. */
  isMade(id: string): boolean {
    return this.#made.has(id)
  }

  /** What a plan made or renamed though the caller may not. */
  noteRefused({ id }: StoredObject): void {
    this.#refused.add(id)
  }

  /**
   * What could not be made or changed is here as if it was: what comes after it is planned as for whoever may do all of it.
   * `stored`: undefined where it is new.
   */
  pretend(section: Section, values: Values, stored?: StoredObject): StoredObject | undefined {
    const id = stored?.id ?? `refused ${this.#undone.size}`
    this.#refused.add(id)
    this.#undone.add(id)
    if (!stored) this.#made.add(id)
    const record = guarded(kinds[section], { ...values, id }, this.#on.cipher.fingerprint)
    return this.#place(section, stored ? { ...stored.record, ...record } : this.#withParts(section, record))
  }

  /** What an object refers to, and would not with a change of some fields, or its deletion, that is refused. */
  noteDereferenced(
    { section, record }: StoredObject,
    { changed, isDone }: { changed?: readonly string[]; isDone: boolean },
  ): void {
    for (const { name, field, refersTo } of kinds[section].fields) {
      if (refersTo === undefined || (changed && !changed.includes(name))) continue
      for (const id of [record[field] ?? []].flat().map(String)) {
        this.#dereferenced.add(id)
        if (!isDone) this.#stillReferred.add(id)
      }
    }
  }

  /** Whether a refused change or deletion is to let an object go. */
  isDereferenced({ id }: StoredObject): boolean {
    return this.#dereferenced.has(id)
  }

  /** The same where it was not made in the transaction either. */
  isStillReferenced({ id }: StoredObject): boolean {
    return this.#stillReferred.has(id)
  }

  /** Whether it was refused to the caller to make an object, or to change it. */
  isRefused({ id }: StoredObject): boolean {
    return this.#refused.has(id)
  }

  /** Whether an object is as the files have it in the plan alone. */
  isUndone({ id }: StoredObject): boolean {
    return this.#undone.has(id)
  }

  #withParts(section: Section, record: Values, stored?: StoredObject): Values {
    const parts = this.#parts.get(section) ?? []
    const values = parts.map(({ field, unchanged }) => [
      field,
      stored?.record[field] ?? unchanged(String(record.id)),
    ])
    return { ...Object.fromEntries(values), ...record }
  }

  /** Adds a record, or replaces it. Of its secrets it has the fingerprints alone. */
  put(section: Section, whole: Values): StoredObject | undefined {
    return this.#place(section, guarded(kinds[section], whole, this.#on.cipher.fingerprint))
  }

  #place(section: Section, record: Values): StoredObject | undefined {
    if (isForeign(section, this.#on.scope, record)) return undefined
    const id = String(record.id)
    const orgId = section === 'organizations' ? id : ((record.orgId as string | null | undefined) ?? null)
    const isBuiltIn = section === 'roles' && record.isSystem === true
    const { key: field, spelled } = kinds[section]
    const key = String(spelled[field]?.toFile(record[field]) ?? record[field])
    const stored: StoredObject = { section, id, orgId, key, record, isBuiltIn }
    const isAside = this.#aside.has(id) && this.get(section, id)?.key === key
    this.remove(section, id)
    this.#sections.get(section)!.set(id, stored)
    if (isAside) {
      this.#aside.add(id)
      return stored
    }
    const place = placeOf(stored)
    const others = this.#byName.get(place)
    if (others) others.push(stored)
    else this.#byName.set(place, [stored])
    return stored
  }

  remove(section: Section, id: string): void {
    const before = this.#sections.get(section)!.get(id)
    if (!before) return
    this.#sections.get(section)!.delete(id)
    this.#unname(before)
    this.#aside.delete(id)
  }

  /** Its name means another object from now on. */
  setAside(stored: StoredObject): void {
    const now = this.get(stored.section, stored.id)
    if (!now) return
    this.#unname(now)
    this.#aside.add(now.id)
  }

  #unname(stored: StoredObject): void {
    const others = this.#byName.get(placeOf(stored))!
    const at = others.indexOf(stored)
    // One that was set aside has no name.
    if (at >= 0) others.splice(at, 1)
  }

  isAside({ id }: StoredObject): boolean {
    return this.#aside.has(id)
  }

  /** Objects of a section that are somebody's. */
  all(section: Section): StoredObject[] {
    return [...(this.#sections.get(section)?.values() ?? [])].filter(({ isBuiltIn }) => !isBuiltIn)
  }

  get(section: Section, id: string): StoredObject | undefined {
    return this.#sections.get(section)?.get(id)
  }

  /** An object, and those above it in the tree of its section. */
  withAbove(section: Section, id: string): StoredObject[] {
    const found: StoredObject[] = []
    const above = kinds[section].fields.find(({ refersTo }) => refersTo === section)
    for (let next = this.get(section, id); next && !found.includes(next); ) {
      found.push(next)
      next = above && this.get(section, String(next.record[above.field]))
    }
    return found
  }

  /** Those of this name: more than one where nothing keeps names apart. */
  named(section: Section, orgId: string | null, key: string): StoredObject[] {
    const place = placeIn(section, namespaceOf({ section, orgId }), key, '')
    return [...(this.#byName.get(place) ?? [])]
  }

  /** What a reference means: an object of that organization, or a built-in one of that name. `isOther`: not what is meant. */
  referred(
    section: Section,
    orgId: string | null,
    key: string,
    isOther: (stored: StoredObject) => boolean = () => false,
  ): StoredObject[] {
    const own = this.named(section, orgId, key).filter((stored) => !isOther(stored))
    if (own.length > 0 || section !== 'roles') return own
    const scope = orgId === null ? 'partner' : 'organization'
    return [...(this.#byName.get(placeIn(section, null, key, scope)) ?? [])]
  }

  /** Its fields as a file has them, of those that the files are about. */
  file(kind: Kind, stored: StoredObject): Values {
    const file = this.whole(kind, stored)
    for (const { field, isRequested } of this.#parts.get(kind.section) ?? [])
      if (!isRequested) delete file[field]
    return file
  }

  /** All its fields as a file has them. */
  whole(kind: Kind, stored: StoredObject): Values {
    return toFile(kind, stored.record, (section, id) => this.get(section, id)?.key)
  }

  /** Slug of the organization of an object; null: it is of the partner. */
  org(of: Pick<StoredObject, 'section' | 'orgId'>): string | null {
    const orgId = namespaceOf(of)
    return orgId === null ? null : (this.get('organizations', orgId)?.key ?? null)
  }
}

const placeOf = (stored: StoredObject): string => {
  const { section, key, isBuiltIn, record } = stored
  return placeIn(section, namespaceOf(stored), key, isBuiltIn ? String(record.scope) : '')
}

const placeIn = (section: Section, orgId: string | null, key: string, builtIn: string): string =>
  // Only the name may have a space.
  `${section} ${orgId ?? ''} ${builtIn} ${key}`
