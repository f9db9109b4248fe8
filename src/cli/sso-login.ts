import { hash } from 'node:crypto'
import { ApiError } from '../core/client.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import { randomBytes } from '../core/random.ts'
import { auth } from '../identity/contract.ts'
import { sso } from '../sso/contract.ts'
import { ssoSignIn } from '../sso/sign-in/contract.ts'
import { credentialLocation } from './api-client.ts'
import { askText } from './ask.ts'
import type { CommandContext } from './base.ts'
import { runBrowserFlow } from './browser-flow.ts'
import { chooseStore } from './choose-credential-store.ts'
import { updateConfig } from './config-file.ts'
import { readSession } from './credential-store.ts'
import { toReport } from './error-report.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import {
  bearerClient,
  completeLogin,
  fetchMe,
  type LoginFlags,
  otpGenerator,
  readOtp,
  sessionNotKept,
  warnIfUnencrypted,
} from './login.ts'
import type { BrowserCallback } from './loopback.ts'
import { describeFailure } from './loopback-pages.ts'
import { printNote } from './print.ts'
import { isId, resolveId } from './resolve.ts'

export type SsoFlags = Pick<LoginFlags, 'otp' | 'otp-secret-file' | 'store'> & {
  sso: string
  'no-browser'?: boolean | undefined
}

type Me = ReplyOf<typeof auth.me>
type Tokens = Pick<ReplyOf<typeof ssoSignIn.exchange>, 'accessToken' | 'refreshToken' | 'expiresInSeconds'>

/** Signs in at the identity provider of an organization, in a browser; stores the session and reports where. */
export async function loginSso(run: CommandContext, flags: SsoFlags) {
  const url = run.settings.url.value
  const orgId = await organizationOf(run, flags.sso)
  warnIfUnencrypted(url)
  const { ssoEnabled, provider } = await run.anonymous.call(sso.check, { params: { orgId } })
  if (!ssoEnabled) throw isOff(orgId)
  const store = await chooseStore(run.settings, flags.store, run.interactive)
  // Checked before the person signs in.
  if (store.notKeptReason) throw sessionNotKept(store.notKeptReason)
  if (provider) printNote(`Signing in with ${provider.name}`)

  // An attacker who learns the code, such as from the browser history, cannot use it without the verifier (RFC 7636).
  const verifier = randomBytes(32).toString('base64url')
  const challenge = hash('sha256', verifier, 'base64url')
  const { callback, close } = await runBrowserFlow(
    run,
    async (redirect) => `${url}/api/v1/sso/login/${orgId}?${new URLSearchParams({ redirect, challenge })}`,
    { noBrowser: flags['no-browser'] === true, parsePasted: parseCallback },
  )
  try {
    const tokens = await tokensFor(run, callback, verifier)
    const me = await fetchMe(run, tokens)
    const result = await completeLogin(run, store, { tokens: await withFactor(run, tokens, me, flags) })
    const named = me.memberships.find(({ id }) => id === orgId)
    if (result.context !== null && named) await remember(result.context, named)
    return result
  } finally {
    await close()
  }
}

/** An id, or a name from an earlier sign-in on this machine. */
async function organizationOf(run: CommandContext, word: string): Promise<string> {
  if (isId(word)) return word
  const { active } = run.settings
  const known = active?.context.sso
  const lower = word.toLowerCase()
  if (known && (known.slug === lower || known.name.toLowerCase() === lower)) return known.orgId
  const place = credentialLocation(run.settings, run.interactive)
  const isSignedIn =
    run.clientOptions.token !== undefined || (place && (await readSession(place)) !== undefined)
  if (isSignedIn) return resolveId(run.client, 'organization', word)
  throw usageError(
    `--sso takes the id of an organization here, not "${word}"`,
    'names can be resolved only after a sign-in; an administrator of the organization knows its id',
  )
}

const isOff = (orgId: string): CliError =>
  new CliError(`The organization ${orgId} has no single sign-on, or there is no such organization`, {
    exit: exitCodes.authentication,
    code: 'sso_off',
    hint: 'svc login signs in with a password; svc sso list shows an administrator whether a provider is active',
  })

/** Parses the final address, or a code alone. */
function parseCallback(text: string): BrowserCallback | undefined {
  const answer = () => {}
  if (/^[\w-]{20,128}$/.test(text)) return { code: text, answer }
  if (!URL.canParse(text)) return undefined
  const { hash: fragment, searchParams } = new URL(text)
  const code = new URLSearchParams(fragment.slice(1)).get('ssoCode')
  if (code) return { code, answer }
  const error = searchParams.get('error')
  return error === null ? undefined : { error }
}

async function tokensFor(run: CommandContext, callback: BrowserCallback, verifier: string): Promise<Tokens> {
  if ('error' in callback) {
    const { message, ...more } = describeFailure(callback.error)
    throw new CliError(message, { exit: exitCodes.authentication, ...more })
  }
  if (!('code' in callback)) throw new CliError('The browser came back without a code', { code: 'sso_error' })
  const { code, answer } = callback
  try {
    const tokens = await run.anonymous.call(ssoSignIn.exchange, { body: { code, verifier } })
    answer()
    return tokens
  } catch (error) {
    answer(toReport(error)?.error.message ?? 'The sign-in failed')
    throw error
  }
}

/** A provider may check one factor only: a code of the service adds the second one. */
async function withFactor(
  run: CommandContext,
  tokens: Tokens,
  { user, mfaVerified }: Me,
  flags: SsoFlags,
): Promise<Tokens> {
  if (!user.mfaEnabled || mfaVerified) return tokens
  const [given, codes] = [await readOtp(flags), await otpGenerator(flags)]
  const isAsked = given === undefined && codes === undefined
  if (isAsked && (!run.interactive || user.mfaMethod === 'sms')) {
    printNote(
      `Actions that need a second factor are refused: sign in with svc login --sso ${flags.sso} --otp CODE`,
    )
    return tokens
  }
  const question = 'Code of your authenticator, as a second factor; - for none'
  for (let tries = isAsked ? 3 : 1; ; tries -= 1) {
    const code = (given ?? (await codes?.next()) ?? (await askText(question))).trim()
    if (isAsked && code === '-') return tokens
    try {
      const reply = await bearerClient(run, tokens).call(auth.verifyMfa, { body: { code } })
      return (reply.tokens as Tokens | null) ?? tokens
    } catch (error) {
      if (tries === 1 || !(error instanceof ApiError) || error.code !== 'invalid_mfa_code') throw error
      printNote('That code is not right. Try the next one.')
    }
  }
}

/** Stores the names of the organization, so that the next sign-in can use them. */
const remember = (context: string, { id: orgId, name, slug }: Me['memberships'][number]): Promise<unknown> =>
  updateConfig((profile) => {
    const place = profile.contexts[context]
    if (place) place.sso = { orgId, name, slug }
  })
