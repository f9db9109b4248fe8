import type { z } from 'zod'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { type Endpoint, isMutation } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { unwrap } from '../../src/core/schema.ts'
import { systemClock } from '../../src/core/time.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { insertSession } from '../../src/identity/sessions/store.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { insertUser } from '../../src/identity/store.ts'
import { type TestService, testSecrets } from '../harness.ts'
import { endpointsOf, issuer } from '../sso/provider-fixture.ts'
import type { identityProvider } from '../sso/sign-in/identity-provider.ts'
import { browser, codeIn } from '../sso/sign-in/sign-in-fixture.ts'
import { addOrgUser, addPartnerUser, addProvider, roleOf, tokenFor, type World } from '../world.ts'
import { callOf, type Input, put, type Records, toWire } from './calls.ts'
import { called, type Entry, fieldsOf, idsOf, last, optional } from './fields.ts'
import { recordsOf } from './fixture.ts'
import { changed, type Dump, dump, restore } from './tables.ts'
import type { Answer, Line, Wire } from './wire.ts'

/** An effect of one tenant on an account in the other. */
export type Touch = { by: string; entry: string; call: string; what: string }

const password = 'nine quiet herons over the weir'

/** A user with an account, as known to the tenants of the other side. */
type Person = { id: string; email: string; name: string }

type Caller = { name: string; token?: string; key?: string }

/** One partner with its organization, and all callers who act for them. */
export type Side = {
  name: string
  ids: readonly string[]
  callers: readonly Caller[]
  records: Records
  /** The organization with the identity provider. */
  orgId: string
  /** The administrator who views users on this side. */
  watcher: string
  /** The organization or partner in which users of this side sign in. */
  signIns: readonly { orgId?: string; partnerId?: string }[]
  chains: readonly string[]
}

/** Users on whom one side acts: a member of both, one invited by the other side, one unknown there. */
type Subject = Person & { at: string; held: string; signIns: Side['signIns'] }

export type TwoTenants = {
  service: TestService
  idp: ReturnType<typeof identityProvider>
  sides: readonly [Side, Side]
  subjects: ReadonlyMap<Side, readonly Subject[]>
}

export async function buildTwoTenants(
  service: TestService,
  world: World,
  idp: TwoTenants['idp'],
): Promise<TwoTenants> {
  const { bakery, harbor } = world.orgs
  const { acme, globex } = world.partners
  const now = () => systemClock()
  const viewer = roleOf('Org Viewer', 'organization')
  const partnerViewer = roleOf('Partner Viewer', 'partner')
  const passwordHash = await hashPassword(password)

  const person = async (name: string): Promise<Person> => {
    const one = { id: newId(), email: `${name}@example.net`, name: `${name} as they are` }
    await service.storage.write((tx) => insertUser(tx, { ...one, passwordHash, emailProvedAt: now() }, now()))
    return one
  }
  const inOrg = (userId: string, orgId: string, beginning: object = {}) =>
    service.storage.write((tx) =>
      joinOrganization(tx, { orgId, userId, roleId: viewer, siteIds: null, ...beginning }, now()),
    )
  const inPartner = (userId: string, partnerId: string, beginning: object = {}) =>
    service.storage.write((tx) =>
      joinPartner(tx, { partnerId, userId, roleId: partnerViewer, orgs: [], ...beginning }, now()),
    )
  const invited = ({ email }: Person) => ({ acceptedBy: null, invited: { name: 'Invited', email } })

  const both = await person('both')
  await inOrg(both.id, bakery.id)
  await inOrg(both.id, harbor.id)
  await inPartner(both.id, globex)
  const invitedHere = await person('invited-at-bakery')
  await inOrg(invitedHere.id, harbor.id)
  await inOrg(invitedHere.id, bakery.id, invited(invitedHere))
  const unknownHere = await person('unknown-at-bakery')
  await inOrg(unknownHere.id, harbor.id)
  const invitedThere = await person('invited-at-globex')
  await inOrg(invitedThere.id, bakery.id)
  await inPartner(invitedThere.id, globex, invited(invitedThere))
  await inOrg(invitedThere.id, harbor.id, invited(invitedThere))
  // Members of more than these two tenants, so that a removal by one does not leave only the other.
  const system = service.client(world.tokens.system)
  const third = await system.call(api.partners.create, { body: { name: 'Third', slug: 'third' } })
  await inPartner(both.id, third.id)
  const unknownThere = await person('unknown-at-globex')
  await inOrg(unknownThere.id, bakery.id)

  const side = async (org: World['orgs']['bakery'], partnerId: string, names: string[]): Promise<Side> => {
    const { name } = org
    const provider = { issuer, clientId: 'svc', ...endpointsOf(issuer), defaultRoleId: viewer }
    const providerId = await addProvider(service, org.id, { ...provider, status: 'active' })
    const admin = await addOrgUser(service, `${name}-one`, org.id)
    const partner = await addPartnerUser(service, `${name}-partner`, partnerId, 'all')
    const member = await addOrgUser(service, `${name}-member`, org.id, { role: 'Org Viewer' })
    const { permissions } = await service.client(admin).call(api.auth.me)
    const scopes = permissions.filter((one) => one !== '*:*')
    const key = await service
      .client(admin)
      .call(api.apiKeys.create, { body: { name: 'All it may', scopes: scopes as never } })
    return {
      name,
      ids: [org.id, partnerId],
      orgId: org.id,
      records: await recordsOf(service, partnerId, { ...org, providerId }),
      // The least privileged callers come first.
      callers: [
        { name: 'an API key', key: key.key },
        { name: 'a member', token: member },
        { name: 'its provider', token: await bySso(service, both.id, org.id, providerId) },
        { name: 'its administrator', token: admin },
        { name: "its partner's administrator", token: partner },
      ],
      watcher: names.includes('partner')
        ? await addPartnerUser(service, `${name}-watches`, partnerId, 'all')
        : await addOrgUser(service, `${name}-watches`, org.id),
      signIns: names.includes('partner') ? [{ partnerId }, { orgId: org.id }] : [{ orgId: org.id }],
      chains: [org.id],
    }
  }
  const bakerys = await side(bakery, acme, [])
  const harbors = await side(harbor, globex, ['partner'])

  /** The affected users as seen by the other side, each with a continuous session. */
  const subject = async (one: Person, at: Side, signIns = at.signIns): Promise<Subject> => {
    const orgId = signIns.at(-1)!.orgId!
    const held = await tokenFor(service, one.id, { kind: 'organization', orgId }, { mfa: false })
    return { ...one, at: at.name, held, signIns }
  }
  const inHarbor = [{ orgId: harbor.id }]
  const subjects = new Map<Side, Subject[]>([
    [
      harbors,
      [
        await subject(both, harbors),
        await subject(invitedHere, harbors, inHarbor),
        await subject(unknownHere, harbors, inHarbor),
      ],
    ],
    [
      bakerys,
      [
        await subject(both, bakerys),
        await subject(invitedThere, bakerys),
        await subject(unknownThere, bakerys),
      ],
    ],
  ])
  return { service, idp, sides: [bakerys, harbors], subjects }
}

/** A session of single sign-on, with the second factor that the provider claims. */
async function bySso(
  service: TestService,
  userId: string,
  orgId: string,
  ssoProviderId: string,
): Promise<string> {
  const row = await service.storage.read
    .selectFrom('users')
    .select(['auth_epoch as authEpoch', 'mfa_epoch as mfaEpoch'])
    .where('id', '=', userId)
    .executeTakeFirstOrThrow()
  const [id, now] = [newId(), systemClock()]
  const context = { kind: 'organization', orgId } as const
  const session = { id, userId, context, mfa: true, tokenHash: id, ssoProviderId }
  await service.storage.write((tx) =>
    insertSession(tx, { ...session, expiresAt: '9999-01-01T00:00:00.000Z' }, now),
  )
  return createAccessTokens(testSecrets.JWT_SECRET).sign(
    { userId, sessionId: id, context, ...row, mfa: true },
    new Date(now),
  )
}

/** Entries that identify the caller, or can refer to a user. */
const isAboutPeople = ({ path }: Endpoint): boolean => /^\/(users|auth|roles|sso|permissions)\b/.test(path)

/**
 * The calls of an entry: minimal, complete, and with each optional field alone, with every value of it
 * or with one value.
 */
function inputsFor(entry: Endpoint, records: Records, about: Person, values: 'every' | 'one'): Input[] {
  const own = { ...records, user: about.id }
  const plain = callOf(entry, own)
  const full = callOf(entry, own, { all: true })
  const inputs = [plain, full]
  if (entry.body && isAboutPeople(entry)) {
    const fields = fieldsOf(entry.body).filter(({ path }) => path.length === 1)
    const needed = fields.filter(({ schema }) => !optional(schema)).map(({ path }) => path[0]!)
    for (const { path, schema } of fields) {
      const [name] = path as [string]
      const said = (full.body ?? {}) as Record<string, unknown>
      const kept = Object.fromEntries(needed.filter((one) => one in said).map((one) => [one, said[one]]))
      const all = valuesOf(schema, said[name])
      for (const value of values === 'every' ? all : all.slice(0, 1)) {
        inputs.push({ ...plain, body: { ...kept, [name]: value } })
      }
    }
  }
  const addressed = inputs.map((input) => {
    const copy = structuredClone(input)
    for (const field of fieldsOf(entry.body)) {
      const said = (copy.body as Record<string, unknown> | undefined)?.[field.path[0]!]
      if (field.path.length === 1 && last(field) === 'email' && said !== undefined)
        put(copy, 'body', field.path, about.email)
    }
    return copy
  })
  return [...new Map(addressed.map((input) => [JSON.stringify(input), input])).values()]
}

/** All values of an enum or a boolean; otherwise the given value, and none. */
function valuesOf(schema: z.ZodType, said: unknown): unknown[] {
  const { enum: words, type } = unwrap(schema).toJSONSchema({ io: 'input', unrepresentable: 'any' })
  const candidates = words ?? (type === 'boolean' ? [true, false] : said === undefined ? [] : [said])
  return [...candidates, null].filter((value) => schema.safeParse(value).success)
}

const volatile: readonly string[] = ['accessToken', 'refreshToken', 'requestId', 'lastLoginAt', 'tempToken']

/** An answer without the values that differ each time. */
function lasting({ status, text }: Pick<Answer, 'status' | 'text'>, without: readonly string[] = []): string {
  const clean = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.filter((one) => !mentions(one, without)).map(clean)
    if (value === null || typeof value !== 'object') return value
    const pairs = Object.entries(value).filter(([key]) => !volatile.includes(key))
    return Object.fromEntries(pairs.map(([key, one]) => [key, clean(one)]))
  }
  return `${status} ${JSON.stringify(clean(JSON.parse(text)))}`
}

const mentions = (value: unknown, ids: readonly string[]): boolean =>
  ids.some((id) => JSON.stringify(value)?.includes(id))

/** What is visible of a user: each read with its result. */
type View = Map<string, string>

/** One side acts, and the other checks whether anything of its users has changed. */
export class Watch {
  readonly #on: TwoTenants
  readonly #line: Line
  readonly #from: Side
  readonly #at: Side
  readonly #subjects: readonly Subject[]
  #looks: { name: string; path: string; token: string }[] = []
  #before: Dump = new Map()
  #view: View = new Map()
  #entries = 0
  readonly touches: Touch[] = []
  /** Successful calls, by caller. */
  readonly called = new Set<string>()
  readonly worked = new Map<string, number>()
  calls = 0
  looked = 0

  constructor(on: TwoTenants, from: Side, line: Line) {
    this.#on = on
    this.#line = line
    this.#from = from
    this.#at = on.sides.find((one) => one !== from)!
    this.#subjects = on.subjects.get(this.#at)!
  }

  async begin(): Promise<void> {
    this.#looks = await this.#findLooks()
    this.#before = await dump(this.#on.service.storage, { sessions: true })
    this.#view = await this.#look()
    await this.#back()
  }

  get looks(): string[] {
    return [...new Set(this.#looks.map(({ name }) => name))]
  }

  /** All reads that show anything of a user to an administrator of their tenant. */
  async #findLooks() {
    const looks: { name: string; path: string; token: string }[] = []
    // Reads with the same result are used once.
    const known = new Set<string>()
    const { watcher: token, records } = this.#at
    for (const { name, entry } of called(api)) {
      // Reading adds to the audit log; additions by the other side are checked separately.
      if (isMutation(entry) || entry.access.who !== 'user' || entry.path.startsWith('/audit-logs')) continue
      for (const one of this.#subjects) {
        const role = roleOf('Org Viewer', 'organization')
        const input = callOf(entry, { ...records, user: one.id, role })
        if (name === 'permissions.explain') Object.assign(input.query, { userId: one.id, path: '/devices' })
        if (entry.query && 'q' in entry.query.shape) Object.assign(input.query, { q: one.name })
        const plain = { ...input, query: {} }
        for (const asked of [input, plain]) {
          const { path } = toWire(entry, asked)
          const { status, text } = await this.#line.send({ method: 'GET', path, token })
          const shows = text.includes(one.id) || JSON.stringify(asked).includes(one.id)
          if (status !== 200 || !shows || !text.startsWith('{') || known.has(`${name} ${text}`)) continue
          known.add(`${name} ${text}`)
          looks.push({ name, path, token })
        }
      }
    }
    for (const { id, held } of this.#subjects)
      looks.push({ name: `held by ${id}`, path: '/api/v1/auth/me', token: held })
    return [...new Map(looks.map((one) => [`${one.path} ${one.token}`, one])).values()]
  }

  /** Checks what administrators see, permissions and sign-ins; then restores everything. */
  async #look(): Promise<View> {
    const view: View = new Map()
    const own = this.#from.ids
    for (const { name, path, token } of this.#looks) {
      view.set(`${name} ${path}`, lasting(await this.#line.send({ method: 'GET', path, token }), own))
    }
    for (const { email, signIns } of this.#subjects) {
      for (const where of signIns) {
        const login = await this.#post('/auth/login', { email, password, ...where })
        const at = `signing in as ${email} at ${JSON.stringify(where)}`
        view.set(at, lasting(login, own))
        const { tokens } = JSON.parse(login.text) as { tokens?: { refreshToken: string } | null }
        const refreshed = await this.#post('/auth/refresh', { refreshToken: tokens?.refreshToken ?? 'none' })
        view.set(`${at}, and going on`, lasting(refreshed, own))
      }
    }
    return view
  }

  #by({ token, key }: Omit<Caller, 'name'>, wire: Wire): Promise<Answer> {
    return this.#line.send({ ...wire, token, ...(key !== undefined && { headers: { 'x-api-key': key } }) })
  }

  #post(path: string, body: object): Promise<Answer> {
    return this.#line.send({ method: 'POST', path: `/api/v1${path}`, body: JSON.stringify(body) })
  }

  /** Returns whether anything had changed. */
  async #back(): Promise<boolean> {
    const { storage } = this.#on.service
    const after = await dump(storage, { sessions: true })
    if (changed(this.#before, after).length === 0) return false
    await restore(storage, this.#before, after)
    this.#entries = await this.#entriesThere()
    return true
  }

  /** The size of the audit log of the other side. */
  async #entriesThere(): Promise<number> {
    const { storage } = this.#on.service
    await sealPending(storage)
    const rows = await storage.read
      .selectFrom('audit_logs')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('chain', 'in', this.#at.chains)
      .executeTakeFirstOrThrow()
    return Number(rows.count)
  }

  /** Checks the effects of a call. */
  async judge(by: string, entry: string, call: string): Promise<void> {
    const touch = (what: string) => this.touches.push({ by, entry, call, what })
    const after = await dump(this.#on.service.storage, { sessions: true })
    if (changed(this.#before, after).length === 0) return
    // An anonymous caller belongs to neither tenant: a wrong password is logged in the tenant of the account.
    const more = (await this.#entriesThere()) !== this.#entries
    if (more && by !== 'nobody') touch('the audit log of the other tenant has more')
    this.looked += 1
    const view = await this.#look()
    for (const [at, was] of this.#view) {
      const is = view.get(at)
      if (is !== was) touch(`${at}\n  was ${was}\n  is  ${is}`)
    }
    await this.#back()
  }

  async callEverything(entries: readonly Entry[], values: 'every' | 'one'): Promise<void> {
    for (const { name, entry } of entries) {
      const { who } = entry.access
      this.called.add(name)
      const people = namesPeople(entry) ? this.#subjects : this.#subjects.slice(0, 1)
      const callers: readonly Caller[] = who === 'public' ? [{ name: 'nobody' }] : this.#from.callers
      for (const about of people) {
        for (const input of inputsFor(entry, this.#from.records, about, values)) {
          let worked = ''
          for (const caller of callers) {
            const { status } = await this.#by(caller, toWire(entry, input))
            this.calls += 1
            if (status >= 400) continue
            this.worked.set(caller.name, (this.worked.get(caller.name) ?? 0) + 1)
            worked += `${caller.name}, `
          }
          // Everything is restored before each input.
          if (worked && isMutation(entry) && isAboutPeople(entry)) {
            await this.judge(worked, name, JSON.stringify(input))
          }
        }
      }
      // A refused call has no effects. Reads only add to the audit log, which is checked at the end.
      if (isMutation(entry))
        await this.judge(who === 'public' ? 'nobody' : 'all', name, 'one after the other')
    }
    await this.judge('all', 'whatever is read', '')
  }

  /** The provider asserts every user with a second factor; those who are allowed sign in. */
  async signInEverybody(): Promise<string[]> {
    const { service, idp } = this.#on
    const came: string[] = []
    for (const { email } of this.#subjects) {
      for (const round of [1, 2]) {
        const by = browser()
        const begun = await by.open(`${service.url}/api/v1/sso/login/${this.#from.orgId}`)
        const who = { sub: email, email, name: 'As the provider says', amr: ['mfa'] }
        const back = new URL(await idp.authorize(begun.location, who))
        const { location } = await by.open(`${service.url}/api/v1/sso/callback${back.search}`)
        const code = codeIn(location)
        const answer = code === '' ? undefined : await this.#post('/sso/exchange', { code })
        came.push(new URL(location, 'https://x.example').searchParams.get('error') ?? `${answer?.status}`)
        if (round === 2) await this.judge('its provider', 'ssoSignIn.callback', email)
      }
    }
    return came
  }

  /** Checks that the acting callers still can act, so that nothing was lost permanently. */
  async stillActing(): Promise<string[]> {
    const acting: string[] = []
    for (const { name, token, key } of this.#from.callers) {
      const path = `/api/v1/${key === undefined ? 'sso/presets' : 'devices'}`
      const { status } = await this.#by({ token, key }, { method: 'GET', path })
      if (status === 200) acting.push(name)
    }
    return acting
  }
}

const namesPeople = (entry: Endpoint): boolean =>
  idsOf(entry).some(({ resource }) => resource === 'user') ||
  fieldsOf(entry.body).some((field) => last(field) === 'email')
