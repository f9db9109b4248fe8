import { ApiError, type Client, createClient } from '../core/client.ts'
import type { InputOf, ReplyOf } from '../core/endpoint.ts'
import { isId } from '../core/ids.ts'
import { auth } from '../identity/contract.ts'
import { askSecret, askText, readStdin, secretFrom } from './ask.ts'
import type { Session as Run } from './base.ts'
import { type ChosenStore, chooseStore } from './choose-store.ts'
import { CliError, exits, usage } from './exit.ts'
import { alone } from './lock.ts'
import { membershipNamed } from './memberships.ts'
import type { Codes } from './otp-secret.ts'
import { say } from './print.ts'
import { changeProfile, checkContextName, type KnownIdentity, nameFor } from './profile.ts'
import { clientOptions, placeOf, sessionOf } from './send.ts'
import { sameAddress } from './settings.ts'
import { type Place, readSession, removeSession, type Session, whereabouts, writeSession } from './store.ts'
import { isLocal } from './transport.ts'

export type LoginFlags = {
  email?: string | undefined
  password?: string | undefined
  'password-stdin'?: boolean | undefined
  otp?: string | undefined
  'otp-secret-file'?: string | undefined
  store?: string | undefined
  partner?: string | undefined
  org?: string | undefined
}

type Me = ReplyOf<typeof auth.me>
type Tokens = NonNullable<ReplyOf<typeof auth.login>['tokens']>

/** Signs in, keeps the session and says where. */
export async function login(run: Run, flags: LoginFlags) {
  const email = flags.email ?? (await asked(run, '--email', () => askText('E-mail')))
  const secrets = await secretsOf(run, flags)
  const codes = await codesOf(flags)
  warnIfOpen(run.settings.url.value)
  const store = await chooseStore(run.settings, flags.store, run.attended)

  const first = await run.stranger.call(auth.login, {
    body: { email, password: secrets.password, ...(await knownHere(run)), ...membershipOf(flags) },
  })
  const reply = first.mfaRequired ? await withCode(run, first, secrets.otp, codes) : first
  return settle(run, store, reply, flags)
}

/** Keeps the session that was just begun, and says where. */
export async function settle(
  run: Run,
  store: ChosenStore,
  reply: { tokens: Tokens | null; mfaEnrollmentRequired?: boolean | undefined },
  wanted: Pick<LoginFlags, 'org' | 'partner'> = {},
) {
  if (!reply.tokens)
    throw new CliError('The service gave no session', { hint: 'is its version the same as this one?' })

  const { me, tokens } = await inMembership(run, reply.tokens, wanted)
  const session = sessionOf(run.settings.url.value, tokens)
  const context = await keep(run, store, session, identityOf(me))
  const required = reply.mfaEnrollmentRequired === true
  tell(run, me, context, store, required)
  if (store.unkept) throw notKept(store.unkept)
  return {
    url: run.settings.url.value,
    context: context?.name ?? null,
    user: me.user,
    scope: me.scope,
    partnerId: me.partnerId,
    orgId: me.orgId,
    mfaVerified: me.mfaVerified,
    mfaEnrollmentRequired: required,
    store: store.kind,
  }
}

export const notKept = (reason: string): CliError =>
  new CliError(`The session was not kept, so the next command is not signed in. ${reason}`, {
    code: 'session_not_kept',
    hint: 'agree to a file with --store file (or SVC_CREDENTIAL_STORE=file), or pass a token in SVC_TOKEN',
  })

/** A password over plain HTTP can be read on the way. */
export function warnIfOpen(address: string): void {
  const { protocol, hostname } = new URL(address)
  if (protocol === 'http:' && !isLocal(hostname)) say(`Warning: ${address} is not encrypted: use https`)
}

/** The session of before, which the account knows this machine by; that it cannot be read keeps nobody from signing in. */
async function knownHere({ settings, attended }: Run): Promise<{ refreshToken?: string }> {
  const place = placeOf(settings, attended)
  const session = place && (await readSession(place).catch(() => undefined))
  if (!session?.refreshToken || !sameAddress(session.url, settings.url.value)) return {}
  return { refreshToken: session.refreshToken }
}

async function asked<T>(run: Run, flag: string, ask: () => Promise<T>): Promise<T> {
  if (!run.attended) throw usage(`Missing ${flag}`)
  return ask()
}

/** The membership by id. A name can only be looked up once signed in: `inMembership`. */
function membershipOf({
  org,
  partner,
}: LoginFlags): Pick<InputOf<typeof auth.login>['body'], 'orgId' | 'partnerId'> {
  return { ...(org && isId(org) && { orgId: org }), ...(partner && isId(partner) && { partnerId: partner }) }
}

/** Who signed in, gone on to the membership that a flag names. */
async function inMembership(run: Run, tokens: Tokens, { org, partner }: LoginFlags) {
  const me = await whoIs(run, tokens)
  const name = org ?? partner
  if (name === undefined || isId(name)) return { me, tokens }
  const body = membershipNamed(me.memberships, name, org === undefined ? 'partner' : 'organization')
  const switched = await bearerOf(run, tokens).call(auth.switch, { body })
  const next = switched.tokens ?? tokens
  return { me: await whoIs(run, next), tokens: next }
}

export async function secretsOf(
  run: Run,
  flags: LoginFlags,
): Promise<{ password: string; otp: string | undefined }> {
  const fromStdin = flags['password-stdin'] || flags.password === '-'
  if (fromStdin && flags.otp === '-') {
    const [password = '', otp = ''] = (await readStdin('the password, and the code on a second line')).split(
      /\r?\n/,
    )
    return { password, otp }
  }
  const password = fromStdin
    ? await secretFrom('-', 'the password')
    : flags.password !== undefined
      ? await secretFrom(flags.password, '--password')
      : await asked(run, '--password-stdin', () => askSecret('Password'))
  return { password, otp: await givenCode(flags) }
}

export const givenCode = async ({ otp }: Pick<LoginFlags, 'otp'>): Promise<string | undefined> =>
  otp === '-' ? secretFrom('-', 'the code') : otp

/** Loaded for those who ask for it: it computes what an authenticator does. */
export async function codesOf({
  'otp-secret-file': path,
}: Pick<LoginFlags, 'otp-secret-file'>): Promise<Codes | undefined> {
  return path === undefined ? undefined : (await import('./otp-secret.ts')).codesFrom(path)
}

type Challenge = Pick<ReplyOf<typeof auth.login>, 'tempToken' | 'mfaMethod'>

async function withCode(
  run: Run,
  { tempToken = '', mfaMethod }: Challenge,
  given: string | undefined,
  codes: Codes | undefined,
) {
  const bySms = mfaMethod === 'sms'
  if (bySms && given === undefined && run.attended) {
    await run.stranger.call(auth.sendSms, { body: { tempToken } })
    say('A code was sent to your phone')
  }
  if (bySms && codes) throw usage('The codes of this account come by SMS: no file has their secret')
  const question = `${bySms ? 'Code of the SMS' : 'Code of your authenticator'}, or a recovery code`
  for (let tries = codes ? 2 : 3; ; tries -= 1) {
    const code = given ?? (await codes?.next()) ?? (await asked(run, '--otp', () => askText(question)))
    try {
      return await run.stranger.call(auth.verifyMfa, { body: { tempToken, code: code.trim() } })
    } catch (error) {
      const again =
        given === undefined && tries > 1 && error instanceof ApiError && error.code === 'invalid_mfa_code'
      if (!again) throw error
      if (!codes) say('That code is not right. Try the next one.')
    }
  }
}

export const whoIs = (run: Run, tokens: Pick<Tokens, 'accessToken'>): Promise<Me> =>
  bearerOf(run, tokens).call(auth.me)

export function bearerOf(run: Run, { accessToken }: Pick<Tokens, 'accessToken'>): Client {
  const headers = async () => ({ authorization: `Bearer ${accessToken}` })
  return createClient({ ...clientOptions(run.send), credentials: { headers } })
}

export const identityOf = (me: Me): KnownIdentity => ({
  email: me.user.email,
  scope: me.scope,
  orgId: me.orgId,
  partnerId: me.partnerId,
})

/** Stores the session first, then the context that points at it. */
export async function keep(
  { settings, attended }: Run,
  store: ChosenStore,
  session: Session,
  identity: KnownIdentity,
) {
  if (store.kind === 'memory') return undefined
  const url = settings.url.value
  const wanted = settings.context.from === 'context' ? undefined : settings.context.value
  const name = checkContextName(wanted ?? settings.active?.name ?? nameFor(settings.profile, url))
  const place: Place = { kind: store.kind, context: name, attended }
  await alone(name, () => writeSession(place, session))
  const before = settings.profile.contexts[name]?.store
  if (before && before !== store.kind) {
    await removeSession({ ...place, kind: before }).catch((error: Error) =>
      say(`The session of before is still in ${whereabouts({ ...place, kind: before })}: ${error.message}`),
    )
  }
  await changeProfile((profile) => {
    profile.contexts[name] = { ...profile.contexts[name], url, identity, store: store.kind }
    profile.current = name
    profile.store = store.kind
  })
  return { name, place }
}

function tell(
  run: Run,
  me: Me,
  context: { name: string; place: Place } | undefined,
  store: ChosenStore,
  required: boolean,
) {
  say(`Signed in to ${run.settings.url.value} as ${me.user.email}, ${scopeOf(me)}`)
  if (context) say(`Context ${context.name}; the session is in ${whereabouts(context.place)}`)
  else if (!store.unkept) say('The session was not kept, as you asked')
  if (run.send.token) say(`Warning: ${run.send.token.source} is set and goes before this session`)
  if (run.send.apiKey !== undefined) say('Warning: SVC_API_KEY is set and goes before this session')
  if (required)
    say('This account must set up a second factor before anything else: svc mfa setup, then svc mfa enable')
}

/** `system scope`, or the organization or partner the session acts for. */
export function scopeOf({ scope, orgId, partnerId }: Pick<Me, 'scope' | 'orgId' | 'partnerId'>): string {
  const where = scope === 'organization' ? ` of ${orgId}` : scope === 'partner' ? ` of ${partnerId}` : ''
  return `${scope} scope${where}`
}

export const notSignedIn = (url: string): CliError =>
  new CliError(`Not signed in to ${url}`, {
    exit: exits.authentication,
    code: 'unauthenticated',
    hint: 'svc login',
  })
