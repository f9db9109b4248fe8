import { invalid, Problem } from '../../core/errors.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import { type Caller, type HandlersOf, inSteps, type UserCaller } from '../../handler.ts'
import { decryptOrUnavailable } from '../../storage/key-check.ts'
import type { Db } from '../../storage/open.ts'
import { notifyFactorsChanged } from '../notifications.ts'
import type { PasswordGuard } from '../password-guard/guard.ts'
import { contextOfScope, orgOfContext } from '../rules.ts'
import { getPendingChallenge } from '../sessions/challenge.ts'
import { emitLogin } from '../sessions/events.ts'
import { type GrantedSession, grantSession } from '../sessions/grant.ts'
import { loginFacts, toIdentity, toSignInReply } from '../sessions/identity.ts'
import { type Challenge, consumeChallenge, endReplacedSession, recordLogin } from '../sessions/store.ts'
import { startSession } from '../sessions/tenants.ts'
import type { AccessTokens } from '../sessions/tokens.ts'
import { checkCanManageFactors } from '../sso-only.ts'
import { getUser, type User } from '../store.ts'
import type { factors } from './contract.ts'
import {
  consumeProof,
  type FactorProof,
  invalidCode,
  type ProofDependencies,
  type ReauthenticationCall,
  reauthenticate,
  totpAad,
  verifyCode,
} from './proof.ts'
import { newRecoveryCodes, recoveryHash } from './recovery.ts'
import * as store from './store.ts'
import { newTotpSecret, totpStep, totpUrl } from './totp.ts'

type Factors = typeof factors

export type FactorDependencies = ProofDependencies & {
  access: AccessTokens
  guard: PasswordGuard
  /** ENABLE_2FA: without it there are no factors, and their routes return 404. */
  mfaOn: boolean
}

type Setup = { secret: string; recoveryCodes: string[] }
type ConfirmedSetup = { user: User; factor: store.Factor; recoveryCodes: string[]; granted: GrantedSession }

const setupSeconds = 10 * 60
const setupAad = (userId: string) => `mfa_setups.content.${userId}` as const

export const factorHandlers = (keys: FactorDependencies): HandlersOf<Factors> => {
  const { access, cipher, guard, mfaOn } = keys

  /** Checks the first code of the authenticator being enrolled, and prepares a session with that factor proved. */
  async function confirm(
    call: ReauthenticationCall,
    body: { code: string; currentPassword?: string | undefined },
  ): Promise<ConfirmedSetup> {
    const { storage, caller, now, limit } = call
    await limit('MFA', factorLimitKey(caller))
    const setup = await store.findMfaSetup(storage.read, caller.id)
    const user = await getUser(storage.read, caller.id)
    const content =
      setup && (await decryptOrUnavailable(storage.read, cipher, setup.content, setupAad(caller.id)))
    if (!content || setup.expiresAt <= now) throw invalid([{ path: 'body.code', message: noSetup }], noSetup)
    // Since the setup began, the account may have gained more than the identity provider may manage.
    await checkCanManageFactors(storage.read, user, caller)
    // The setup began with a reauthentication, and expires before that does.
    if (body.currentPassword !== undefined) await reauthenticate(guard, user, body.currentPassword, call)
    const { secret, recoveryCodes } = JSON.parse(content) as Setup
    const step = totpStep(secret, body.code.trim(), now, 0)
    if (step === undefined) throw invalidCode(caller)
    await limit('NOTICE', caller.id)
    const factor = { method: 'totp' as const, secret: cipher.encrypt(secret, totpAad(user.id)), step }
    const renewed = { ...user, mfaEpoch: user.mfaEpoch + 1 }
    const { ssoProviderId, endsBy } = caller
    const session = { context: contextOfScope(caller.scope), mfa: true, ssoProviderId, endsBy }
    return { user, factor, recoveryCodes, granted: await grantSession(access, renewed, session, now) }
  }

  async function enable(db: Db, { user, factor, recoveryCodes, granted }: ConfirmedSetup, now: Instant) {
    const hashes = recoveryCodes.map((code) => recoveryHash(keys.recoveryPepper, code))
    if (!(await store.enableFactor(db, user, factor, hashes, now))) throw mfaChanged()
    await startSession(db, granted.session, now)
    await notifyOwner(db, user, 'An authenticator app was added', now)
    return {
      success: true as const,
      message: 'MFA enabled successfully',
      recoveryCodes,
      tokens: granted.tokens,
    }
  }

  const notifyOwner = (db: Db, user: User, what: string, now: Instant) =>
    notifyFactorsChanged(db, cipher, user, what, now)

  type Verified =
    | {
        kind: 'sign-in'
        user: User
        challenge: Challenge
        orgId: string | null
        proof: FactorProof
        granted: GrantedSession
      }
    | { kind: 'step-up'; user: User; proof: FactorProof; granted: GrantedSession; replaces: string }
    | { kind: 'enrollment'; confirmed: ConfirmedSetup }

  return {
    setupMfa: inSteps<Factors['setupMfa'], Setup & { otpAuthUrl: string; qrCodeDataUrl: string }>({
      async prepare(call) {
        const { caller, body, storage } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        await checkCanManageFactors(storage.read, user, caller)
        // A user with a phone factor may switch to an app after this session has proved the phone.
        if (user.mfaMethod === 'totp') throw new Problem('conflict', 'MFA is already enabled')
        if (user.mfaMethod !== null && !caller.mfa) throw new Problem('mfa_required')
        await reauthenticate(guard, user, body.currentPassword, call)
        const secret = newTotpSecret()
        const otpAuthUrl = totpUrl(secret, caller.email)
        const { toDataURL } = await import('qrcode')
        const qrCodeDataUrl = await toDataURL(otpAuthUrl, { width: 256 })
        return { secret, recoveryCodes: newRecoveryCodes(), otpAuthUrl, qrCodeDataUrl }
      },
      async run({ db, caller, now, note }, { secret, recoveryCodes, ...urls }) {
        const content = cipher.encrypt(JSON.stringify({ secret, recoveryCodes }), setupAad(caller.id))
        await store.saveMfaSetup(db, caller.id, { content, expiresAt: addSeconds(now, setupSeconds) })
        note({ resourceId: caller.id, resourceName: caller.email })
        return { secret, ...urls, recoveryCodes }
      },
    }),

    enableMfa: inSteps<Factors['enableMfa'], ConfirmedSetup>({
      async prepare(call) {
        checkMfaOn(mfaOn)
        return confirm(call, call.body)
      },
      async run({ db, caller, now, note }, confirmed) {
        note({ resourceId: caller.id, resourceName: caller.email, details: { method: 'totp' } })
        return enable(db, confirmed, now)
      },
    }),

    verifyMfa: inSteps<Factors['verifyMfa'], Verified>({
      async prepare(call) {
        const { storage, caller, body, now, limit } = call
        checkMfaOn(mfaOn)
        if (body.tempToken === undefined) {
          const signedIn = requireUser(caller)
          const user = await getUser(storage.read, signedIn.id)
          if (user.mfaMethod === null) {
            return { kind: 'enrollment', confirmed: await confirm({ ...call, caller: signedIn }, body) }
          }
          await limit('MFA', factorLimitKey(signedIn))
          const context = contextOfScope(signedIn.scope)
          const proof = await verifyCode(storage.read, keys, user, body.code, now)
          const { ssoProviderId, endsBy } = signedIn
          const granted = await grantSession(access, user, { context, mfa: true, ssoProviderId, endsBy }, now)
          return { kind: 'step-up', user, proof, granted, replaces: signedIn.sessionId }
        }
        const { challenge, user, orgId } = await getPendingChallenge(storage.read, body.tempToken, now)
        await limit('MFA', user.id)
        const { context } = challenge
        const proof = await verifyCode(storage.read, keys, user, body.code, now, { orgId })
        const granted = await grantSession(access, user, { context, mfa: true, ssoProviderId: null }, now)
        return { kind: 'sign-in', user, challenge, orgId, proof, granted }
      },
      async run({ db, ip, now, note }, verified) {
        if (verified.kind === 'enrollment') {
          const { user } = verified.confirmed
          note({ action: 'auth.mfa.enable', resourceId: user.id, resourceName: user.email })
          const enabled = await enable(db, verified.confirmed, now)
          return { ...enabled, user: toIdentity({ ...user, mfaMethod: 'totp' }), mfaRequired: false }
        }
        const { user, proof, granted } = verified
        if (verified.kind === 'sign-in') {
          const { challenge, orgId } = verified
          if (!(await consumeChallenge(db, challenge.id))) throw new Problem('invalid_mfa_session')
          await consumeProof(db, user, proof, now, { orgId })
          await recordLogin(db, user.id, now)
          await emitLogin(db, user, orgId, { method: proof.method, mfa: true, ip, now })
          note({ orgId, ...loginFacts(user) })
        } else {
          await consumeProof(db, user, proof, now)
          await endReplacedSession(db, verified.replaces, now)
          note({ action: 'auth.mfa.verify', resourceId: user.id, resourceName: user.email })
        }
        await startSession(db, granted.session, now)
        note({ details: { method: proof.method, mfa: true } })
        return toSignInReply(user, granted, false)
      },
    }),

    disableMfa: inSteps<Factors['disableMfa'], { user: User; proof: FactorProof; granted: GrantedSession }>({
      async prepare(call) {
        const { storage, caller, body, now, limit } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        if (user.mfaMethod === null) throw mfaNotEnabled('MFA is not enabled')
        await checkCanManageFactors(storage.read, user, caller)
        const policy = await store.findMfaPolicy(storage.read, user.id, contextOfScope(caller.scope))
        if (policy.required || !policy.smsAllowed) throw new Problem('mfa_enforced')
        await limit('MFA', user.id)
        // The code in the request is a proof itself.
        if (body.currentPassword !== undefined) await reauthenticate(guard, user, body.currentPassword, call)
        const proof = await verifyCode(storage.read, keys, user, body.code, now)
        await limit('NOTICE', user.id)
        const renewed = { ...user, mfaEpoch: user.mfaEpoch + 1 }
        const { ssoProviderId, endsBy } = caller
        const session = { context: contextOfScope(caller.scope), mfa: false, ssoProviderId, endsBy }
        return { user, proof, granted: await grantSession(access, renewed, session, now) }
      },
      async run({ db, now, note }, { user, proof, granted }) {
        await consumeProof(db, user, proof, now)
        if (!(await store.disableFactors(db, user, now))) throw mfaChanged()
        await startSession(db, granted.session, now)
        await notifyOwner(db, user, 'The second factor was removed', now)
        note({ resourceId: user.id, resourceName: user.email, details: { method: user.mfaMethod } })
        return { success: true, message: 'MFA disabled successfully', tokens: granted.tokens }
      },
    }),

    newRecoveryCodes: inSteps<Factors['newRecoveryCodes'], User>({
      async prepare(call) {
        const { storage, caller, body } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        if (user.mfaMethod === null)
          throw mfaNotEnabled('MFA must be enabled before generating recovery codes')
        await checkCanManageFactors(storage.read, user, caller)
        await reauthenticate(guard, user, body.currentPassword, call)
        await call.limit('NOTICE', user.id)
        return user
      },
      async run({ db, now, note }, user) {
        const recoveryCodes = newRecoveryCodes()
        const hashes = recoveryCodes.map((code) => recoveryHash(keys.recoveryPepper, code))
        await store.replaceRecoveryCodes(db, user.id, hashes)
        await notifyOwner(db, user, 'The recovery codes were replaced', now)
        note({ resourceId: user.id, resourceName: user.email })
        return { success: true, message: 'Recovery codes generated successfully', recoveryCodes }
      },
    }),
  }
}

const noSetup = 'No pending MFA setup'

export function checkMfaOn(mfaOn: boolean): void {
  if (!mfaOn) throw new Problem('not_found')
}

export const mfaChanged = () => new Problem('conflict', 'MFA was changed meanwhile')

export const mfaNotEnabled = (message: string) => new Problem('invalid_request', message)

/**
 * Rate limit key for codes tried on one person. A single sign-on session has its own key: otherwise an attacker
 * who runs the provider could use up the attempts that the person needs to sign in.
 */
export const factorLimitKey = ({ id, ssoProviderId, scope }: UserCaller): string =>
  ssoProviderId === null ? id : `${id} ${orgOfContext(contextOfScope(scope))}`

function requireUser(caller: Caller): UserCaller {
  if (caller.kind !== 'user') throw new Problem('unauthenticated', 'Missing or invalid authorization header')
  return caller
}
