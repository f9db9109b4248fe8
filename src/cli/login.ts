import { ApiError, type Client, createClient } from '../core/client.ts'
import type { InputOf, ReplyOf } from '../core/endpoint.ts'
import { isId } from '../core/ids.ts'
import { auth } from '../identity/contract.ts'
import { service } from '../service/contract.ts'
import { baseOptions, credentialLocation, toStoredSession } from './api-client.ts'
import { askSecret, askText, readSecret, readStdin } from './ask.ts'
import type { CommandContext } from './base.ts'
import { type ChosenStore, chooseStore } from './choose-credential-store.ts'
import { type CachedIdentity, checkContextName, contextNameFor, updateConfig } from './config-file.ts'
import {
  type CredentialLocation,
  describeLocation,
  readSession,
  removeSession,
  type StoredSession,
  writeSession,
} from './credential-store.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { withLock } from './lock.ts'
import { findMembership } from './memberships.ts'
import type { OtpGenerator } from './otp-secret.ts'
import { printNote } from './print.ts'
import { isSameUrl } from './settings.ts'
import { isLoopbackHost } from './transport.ts'

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

/** Signs in, stores the session and reports where. */
export async function login(run: CommandContext, flags: LoginFlags) {
  const email = flags.email ?? (await askIfInteractive(run, '--email', () => askText('E-mail')))
  const secrets = await readCredentials(run, flags)
  const codes = await otpGenerator(flags)
  warnIfUnencrypted(run.settings.url.value)
  const store = await chooseStore(run.settings, flags.store, run.interactive)

  const first = await run.anonymous.call(auth.login, {
    body: { email, password: secrets.password, ...(await previousRefreshToken(run)), ...membershipOf(flags) },
  })
  const reply = first.mfaRequired ? await completeMfa(run, first, secrets.otp, codes) : first
  return completeLogin(run, store, reply, flags)
}

/** Stores the new session and reports where. */
export async function completeLogin(
  run: CommandContext,
  store: ChosenStore,
  reply: { tokens: Tokens | null; mfaEnrollmentRequired?: boolean | undefined },
  wanted: Pick<LoginFlags, 'org' | 'partner'> = {},
) {
  if (!reply.tokens)
    throw new CliError('The service returned no session', { hint: 'is its version the same as this one?' })

  const { me, tokens } = await inMembership(run, reply.tokens, wanted)
  const session = toStoredSession(run.settings.url.value, tokens)
  const context = await storeSession(run, store, session, toIdentity(me))
  const required = reply.mfaEnrollmentRequired === true
  reportLogin(run, me, context, store, required)
  if (store.notKeptReason) throw sessionNotKept(store.notKeptReason)
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

export const sessionNotKept = (reason: string): CliError =>
  new CliError(`The session was not stored, so the next command is not signed in. ${reason}`, {
    code: 'session_not_kept',
    hint: 'agree to a file with --store file (or SVC_CREDENTIAL_STORE=file), or pass a token in SVC_TOKEN',
  })

/** A password over plain HTTP can be read by the network. */
export function warnIfUnencrypted(address: string): void {
  const { protocol, hostname } = new URL(address)
  if (protocol === 'http:' && !isLoopbackHost(hostname))
    printNote(`Warning: ${address} is not encrypted: use https`)
}

/** The previous session, by which the service recognizes this machine. A failure to read it does not prevent a sign-in. */
async function previousRefreshToken({
  settings,
  interactive,
}: CommandContext): Promise<{ refreshToken?: string }> {
  const place = credentialLocation(settings, interactive)
  // The sign-in replaces what cannot be read.
  const session = place && (await readSession(place).catch(() => undefined))
  if (!session?.refreshToken || !isSameUrl(session.url, settings.url.value)) return {}
  return { refreshToken: session.refreshToken }
}

async function askIfInteractive<T>(run: CommandContext, flag: string, ask: () => Promise<T>): Promise<T> {
  if (!run.interactive) throw usageError(`Missing ${flag}`)
  return ask()
}

/** The membership by id. A name can be resolved only after the sign-in: `inMembership`. */
function membershipOf({
  org,
  partner,
}: LoginFlags): Pick<InputOf<typeof auth.login>['body'], 'orgId' | 'partnerId'> {
  return { ...(org && isId(org) && { orgId: org }), ...(partner && isId(partner) && { partnerId: partner }) }
}

/** Switches the new session to the membership that a flag names. */
async function inMembership(run: CommandContext, tokens: Tokens, { org, partner }: LoginFlags) {
  const me = await fetchMe(run, tokens)
  const name = org ?? partner
  if (name === undefined || isId(name)) return { me, tokens }
  const body = findMembership(me.memberships, name, org === undefined ? 'partner' : 'organization')
  const switched = await bearerClient(run, tokens).call(auth.switch, { body })
  const next = switched.tokens ?? tokens
  return { me: await fetchMe(run, next), tokens: next }
}

export async function readCredentials(
  run: CommandContext,
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
    ? await readSecret('-', 'the password')
    : flags.password !== undefined
      ? await readSecret(flags.password, '--password')
      : await askIfInteractive(run, '--password-stdin', () => askPassword(run))
  return { password, otp: await readOtp(flags) }
}

/** A person types no password for a service that cannot be reached, or that is not the one of its certificate. */
async function askPassword(run: CommandContext): Promise<string> {
  await run.anonymous.call(service.health).catch((error) => {
    if (!(error instanceof ApiError)) throw error
  })
  return askSecret('Password')
}

export const readOtp = async ({ otp }: Pick<LoginFlags, 'otp'>): Promise<string | undefined> =>
  otp === '-' ? readSecret('-', 'the code') : otp

/** Computes codes like an authenticator; loaded only when needed. */
export async function otpGenerator({
  'otp-secret-file': path,
}: Pick<LoginFlags, 'otp-secret-file'>): Promise<OtpGenerator | undefined> {
  return path === undefined ? undefined : (await import('./otp-secret.ts')).otpGeneratorFrom(path)
}

type Challenge = Pick<ReplyOf<typeof auth.login>, 'tempToken' | 'mfaMethod'>

async function completeMfa(
  run: CommandContext,
  { tempToken = '', mfaMethod }: Challenge,
  given: string | undefined,
  codes: OtpGenerator | undefined,
) {
  const bySms = mfaMethod === 'sms'
  if (bySms && given === undefined && run.interactive) {
    await run.anonymous.call(auth.sendSms, { body: { tempToken } })
    printNote('A code was sent to your phone')
  }
  if (bySms && codes) throw usageError('The codes of this account come by SMS: they have no secret')
  const question = `${bySms ? 'Code of the SMS' : 'Code of your authenticator'}, or a recovery code`
  for (let tries = codes ? 2 : 3; ; tries -= 1) {
    const code =
      given ?? (await codes?.next()) ?? (await askIfInteractive(run, '--otp', () => askText(question)))
    try {
      return await run.anonymous.call(auth.verifyMfa, { body: { tempToken, code: code.trim() } })
    } catch (error) {
      const again =
        given === undefined && tries > 1 && error instanceof ApiError && error.code === 'invalid_mfa_code'
      if (!again) throw error
      if (!codes) printNote('That code is not right. Try the next one.')
    }
  }
}

export const fetchMe = (run: CommandContext, tokens: Pick<Tokens, 'accessToken'>): Promise<Me> =>
  bearerClient(run, tokens).call(auth.me)

export function bearerClient(run: CommandContext, { accessToken }: Pick<Tokens, 'accessToken'>): Client {
  const headers = async () => ({ authorization: `Bearer ${accessToken}` })
  return createClient({ ...baseOptions(run.clientOptions), credentials: { headers } })
}

export const toIdentity = (me: Me): CachedIdentity => ({
  email: me.user.email,
  scope: me.scope,
  orgId: me.orgId,
  partnerId: me.partnerId,
})

/** Stores the session first, then the context that points at it. */
export async function storeSession(
  { settings, interactive }: CommandContext,
  store: ChosenStore,
  session: StoredSession,
  identity: CachedIdentity,
) {
  if (store.kind === 'memory') return undefined
  const url = settings.url.value
  const wanted = settings.context.from === 'context' ? undefined : settings.context.value
  const name = checkContextName(wanted ?? settings.active?.name ?? contextNameFor(settings.profile, url))
  const place: CredentialLocation = { kind: store.kind, context: name, interactive }
  await withLock(name, () => writeSession(place, session))
  const before = settings.profile.contexts[name]?.store
  if (before && before !== store.kind) {
    await removeSession({ ...place, kind: before }).catch((error: Error) =>
      printNote(
        `The previous session is still in ${describeLocation({ ...place, kind: before })}: ${error.message}`,
      ),
    )
  }
  await updateConfig((profile) => {
    profile.contexts[name] = { ...profile.contexts[name], url, identity, store: store.kind }
    profile.current = name
    profile.store = store.kind
  })
  return { name, place }
}

function reportLogin(
  run: CommandContext,
  me: Me,
  context: { name: string; place: CredentialLocation } | undefined,
  store: ChosenStore,
  required: boolean,
) {
  printNote(`Signed in to ${run.settings.url.value} as ${me.user.email}, ${describeScope(me)}`)
  if (context) printNote(`Context ${context.name}; the session is in ${describeLocation(context.place)}`)
  else if (!store.notKeptReason) printNote('The session was not stored, as requested')
  if (run.clientOptions.token)
    printNote(`Warning: ${run.clientOptions.token.source} is set and takes precedence over this session`)
  if (run.clientOptions.apiKey !== undefined)
    printNote('Warning: SVC_API_KEY is set and takes precedence over this session')
  if (required)
    printNote(
      'This account must set up a second factor before anything else: svc mfa setup, then svc mfa enable',
    )
}

/** `system scope`, or the organization or partner the session acts for. */
function describeScope({ scope, orgId, partnerId }: Pick<Me, 'scope' | 'orgId' | 'partnerId'>): string {
  const where = scope === 'organization' ? ` of ${orgId}` : scope === 'partner' ? ` of ${partnerId}` : ''
  return `${scope} scope${where}`
}

export const notSignedIn = (url: string): CliError =>
  new CliError(`Not signed in to ${url}`, {
    exit: exitCodes.authentication,
    code: 'unauthenticated',
    hint: 'svc login',
  })
