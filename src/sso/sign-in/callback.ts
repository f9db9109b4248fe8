import { Problem } from '../../core/errors.ts'
import { isStorable } from '../../core/schema.ts'
import type { Instant } from '../../core/time.ts'
import { loginFailedAction } from '../../identity/sessions/identity.ts'
import { tokenHash } from '../../identity/sessions/tokens.ts'
import type { Storage } from '../../storage/open.ts'
import type { AssertedIdentity } from '../asserted-identity.ts'
import { failures, SsoFailure } from '../failures.ts'
import type { ProviderRecord } from '../rules.ts'
import { SignInTrace } from '../trace.ts'
import { saveTrial } from '../trials/store.ts'
import { decideAdmission } from './accounts.ts'
import type { CallbackInput, SignInDependencies } from './dependencies.ts'
import * as store from './store.ts'
import { cookieName, entityIdOf, failureRedirect, providerOf, trialRedirect } from './web.ts'

/** A completed callback, and the identity that the provider asserts. */
export type CallbackResult = {
  signIn: store.SignIn
  provider: ProviderRecord
  asserted: AssertedIdentity
  trace: SignInTrace
}

type CallbackState = {
  signIn: store.SignIn
  provider?: ProviderRecord
  asserted?: AssertedIdentity
  trace: SignInTrace
}

type Call = {
  storage: Storage
  cookies: Readonly<Record<string, string | undefined>>
  now: Instant
}

export function createCallbacks({ cipher, web, log }: SignInDependencies) {
  /**
   * Consumes the sign-in of a callback, and reads the identity that the provider asserts.
   * @throws sso_failed, with the address the browser continues at
   */
  async function receiveCallback(
    { storage, cookies, now }: Call,
    state: string | undefined,
    readIdentity: (input: CallbackInput) => Promise<AssertedIdentity>,
  ): Promise<CallbackResult> {
    const stateHash = tokenHash(state ?? '')
    const signIn = await storage.write((tx) => store.consumeSignIn(tx, cipher, stateHash))
    if (!signIn)
      throw unknownSignIn(await missingSignInFailure(storage, state, cookies[cookieName(stateHash)]))
    const known: CallbackState = { signIn, trace: new SignInTrace() }
    return withRefusal(
      known,
      async () => {
        if (signIn.expiresAt <= now) throw new SsoFailure('session_expired')
        checkBrowser(signIn, cookies)
        const provider = await store.findProvider(storage.read, cipher, signIn.providerId)
        checkUnchanged(provider, signIn)
        known.provider = provider
        const base = web.url() ?? ''
        const { trace } = known
        const asserted = await readIdentity({
          provider,
          signIn,
          now,
          trace,
          base,
          entityId: entityIdOf(web, base),
        })
        checkTexts(asserted)
        known.asserted = asserted
        if (signIn.testId !== null) await recordTrialOutcome(storage, provider, asserted, trace)
        return { signIn, provider, asserted, trace }
      },
      storage,
    )
  }

  /** Records the outcome that a trial would have had. */
  async function recordTrialOutcome(
    { read }: Storage,
    provider: ProviderRecord,
    asserted: AssertedIdentity,
    trace: SignInTrace,
  ): Promise<void> {
    const admission = await decideAdmission(read, provider, asserted)
    if (admission.kind === 'elsewhere') throw new SsoFailure('invitation_pending', admission.email)
    if (admission.kind === 'new')
      trace.passed('An account would be made', `${admission.name}, ${admission.email}`)
    else {
      const how = admission.link ? 'known by its link' : 'to be linked by its e-mail address'
      trace.passed('The account is known', `${admission.user.email}, ${how}`)
    }
    trace.passed('A second factor', asserted.mfa ? 'the provider asked for one' : 'the provider says of none')
  }

  /** Turns a failure into the address that the browser continues at; it is logged and audited. */
  async function withRefusal<T>(known: CallbackState, work: () => Promise<T>, storage?: Storage): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof SsoFailure)) throw error
      throw await toRefusal(error, known, storage)
    }
  }

  async function toRefusal(failure: SsoFailure, known: CallbackState, storage?: Storage): Promise<Problem> {
    const { signIn, provider, asserted, trace } = known
    const { code, detail } = failure
    const { hint } = failures[code]
    const orgId = provider?.orgId
    // Not named `code`: the log redacts that field, since the provider's `code` is worth a session.
    log.warn({ reason: code, detail, hint, providerId: signIn.providerId, orgId }, 'SSO sign-in refused')
    if (signIn.testId !== null) {
      trace.failed(failure.message, { code, hint, ...(detail !== undefined && { received: detail }) })
      const trial = { id: signIn.testId, status: 'failed' as const, steps: trace.steps }
      await storage?.write((tx) => saveTrial(tx, trial))
      const location = trialRedirect(web, signIn.redirectPath, 'failed', code)
      return new Problem('sso_failed', failure.message, { location })
    }
    const details = { method: 'sso', providerId: signIn.providerId, reason: code, ...(detail && { detail }) }
    const who = asserted?.email === undefined ? {} : { actorEmail: asserted.email }
    const location = failureRedirect(web, failure, { target: signIn.redirectPath, orgId })
    const result = code === 'beyond_provider' ? { result: 'denied' as const } : {}
    const refusal = { action: loginFailedAction, orgId: orgId ?? null, ...who, ...result, details }
    return new Problem('sso_failed', failure.message, { location, refusal })
  }

  /** Deleting a provider deletes its pending sign-ins; the browser's cookie still identifies the provider. */
  async function missingSignInFailure(
    { read }: Storage,
    state: string | undefined,
    browser: string | undefined,
  ) {
    if (state === undefined) return new SsoFailure('invalid_callback')
    const isThere = browser === undefined || (await store.findProvider(read, cipher, providerOf(browser)))
    return new SsoFailure(isThere ? 'session_expired' : 'provider_not_found')
  }

  /** An unknown sign-in is not logged or audited: anyone could fill the logs with such requests. */
  const unknownSignIn = (failure: SsoFailure): Problem =>
    new Problem('sso_failed', failure.message, { location: failureRedirect(web, failure) })

  return { receiveCallback, withRefusal, toRefusal }
}

/** A link from an attacker must not sign a victim in as another user (RFC 6749, 10.12). */
function checkBrowser({ stateHash, browserHash }: store.SignIn, cookies: Call['cookies']): void {
  const value = cookies[cookieName(stateHash)]
  if (value === undefined || tokenHash(value) !== browserHash) throw new SsoFailure('invalid_callback')
}

/**
 * Text that the database cannot store would cause an internal error, or be stored as another name than the
 * provider's.
 */
function checkTexts({ subject, email, name, groups }: AssertedIdentity): void {
  const values = { subject: [subject], email: [email], name: [name], groups }
  for (const [field, texts] of Object.entries(values)) {
    const isText = texts.every((text) => text === undefined || isStorable(text))
    if (!isText)
      throw new SsoFailure('sso_text_invalid', `${field} has a NUL character, or half of a character`)
  }
}

/** @throws SsoFailure */
export function checkUnchanged(
  provider: ProviderRecord | undefined,
  { providerVersion, testId }: store.SignIn,
): asserts provider is ProviderRecord {
  if (!provider || (provider.status !== 'active' && testId === null))
    throw new SsoFailure('provider_not_found')
  if (provider.updatedAt !== providerVersion) throw new SsoFailure('sso_config_changed')
}
