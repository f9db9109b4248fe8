import type { Cipher } from '../../core/cipher.ts'
import { invalid, Problem } from '../../core/errors.ts'
import { type Instant, later } from '../../core/time.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { contextIn, orgOf } from '../rules.ts'
import { type Granted, grantSession } from '../sessions/grant.ts'
import { identityOf, loginFailed, signsIn } from '../sessions/identity.ts'
import {
  type Challenge,
  findChallenge,
  insertSession,
  recordLogin,
  takeChallenge,
} from '../sessions/store.ts'
import { type AccessTokens, tokenHash } from '../sessions/tokens.ts'
import { findUser, type User } from '../store.ts'
import type { factors } from './contract.ts'
import { looksLikeRecoveryCode, newRecoveryCodes, recoveryHash } from './recovery.ts'
import * as store from './store.ts'
import { newTotpSecret, totpStep, totpUrl } from './totp.ts'

type Factors = typeof factors

export type FactorKeys = {
  access: AccessTokens
  cipher: Cipher
  recoveryPepper: string
  /** ENABLE_2FA: without it there are no factors, and the routes for them answer 404. */
  mfaOn: boolean
}

const setupSeconds = 10 * 60
const totpPlace = (userId: string) => `users.totp_secret.${userId}`
const setupPlace = (userId: string) => `mfa_setups.secret.${userId}`

export const factorHandlers = (keys: FactorKeys): HandlersOf<Factors> => {
  const { access, cipher, mfaOn } = keys

  /** The step of a right authenticator code, the hash of a possible recovery code, or neither. */
  function readCode(user: User, code: string, now: Instant): { step?: number; recovery?: string } {
    const text = code.trim()
    if (looksLikeRecoveryCode(text)) return { recovery: recoveryHash(keys.recoveryPepper, text) }
    if (user.totpSecret === null) return {}
    const step = totpStep(cipher.open(user.totpSecret, totpPlace(user.id)), text, now, user.totpStep)
    return step === undefined ? {} : { step }
  }

  return {
    setupMfa: inSteps<Factors['setupMfa'], { secret: string; otpAuthUrl: string; qrCodeDataUrl: string }>({
      async prepare({ caller }) {
        requireMfaOn(mfaOn)
        if (caller.mfaEnabled) throw new Problem('conflict', 'MFA is already enabled')
        const secret = newTotpSecret()
        const otpAuthUrl = totpUrl(secret, caller.email)
        const { toDataURL } = await import('qrcode')
        return { secret, otpAuthUrl, qrCodeDataUrl: await toDataURL(otpAuthUrl, { width: 256 }) }
      },
      async run({ db, caller, now, note }, { secret, otpAuthUrl, qrCodeDataUrl }) {
        const recoveryCodes = newRecoveryCodes()
        await store.saveMfaSetup(db, caller.id, {
          secret: cipher.seal(secret, setupPlace(caller.id)),
          recoveryHashes: recoveryCodes.map((code) => recoveryHash(keys.recoveryPepper, code)),
          expiresAt: later(now, setupSeconds),
        })
        note({ resourceId: caller.id, resourceName: caller.email })
        return { secret, otpAuthUrl, qrCodeDataUrl, recoveryCodes }
      },
    }),

    enableMfa: inSteps<
      Factors['enableMfa'],
      {
        user: User
        totp: Parameters<typeof store.enableTotp>[2]
        granted: Granted
      }
    >({
      async prepare({ storage, caller, body, now, limit }) {
        requireMfaOn(mfaOn)
        limit('MFA', caller.id)
        const setup = await store.findMfaSetup(storage.read, caller.id)
        const user = await findUser(storage.read, caller.id)
        if (!user || !setup || setup.expiresAt <= now)
          throw invalid([{ path: 'body.code', message: noSetup }], noSetup)
        const secret = cipher.open(setup.secret, setupPlace(user.id))
        const step = totpStep(secret, body.code.trim(), now, 0)
        if (step === undefined) throw new Problem('invalid_mfa_code', undefined, refusedCode(caller))
        const totp = {
          secret: cipher.seal(secret, totpPlace(user.id)),
          step,
          recoveryHashes: setup.recoveryHashes,
        }
        const renewed = { ...user, mfaEpoch: user.mfaEpoch + 1 }
        return {
          user,
          totp,
          granted: await grantSession(access, renewed, { context: contextIn(caller.scope), mfa: true }, now),
        }
      },
      async run({ db, caller, now, note }, { user, totp, granted }) {
        if (!(await store.enableTotp(db, user, totp, now)))
          throw new Problem('conflict', 'MFA was changed meanwhile')
        await insertSession(db, granted.session, now)
        note({ resourceId: caller.id, resourceName: caller.email })
        return { success: true, message: 'MFA enabled successfully', tokens: granted.tokens }
      },
    }),

    verifyMfa: inSteps<
      Factors['verifyMfa'],
      {
        user: User
        challenge: Challenge
        code: { step?: number; recovery?: string }
        granted: Granted
      }
    >({
      async prepare({ storage, body, now, limit }) {
        requireMfaOn(mfaOn)
        const challenge = await findChallenge(storage.read, tokenHash(body.tempToken))
        const user = challenge && (await findUser(storage.read, challenge.userId))
        const live = challenge && challenge.expiresAt > now && user?.mfaEpoch === challenge.mfaEpoch
        if (!live || !user || user.status !== 'active') throw new Problem('invalid_mfa_session')
        limit('MFA', user.id)
        const code = readCode(user, body.code, now)
        if (code.step === undefined && code.recovery === undefined) {
          throw new Problem('invalid_mfa_code', undefined, refusedCode(user, orgOf(challenge.context)))
        }
        return {
          user,
          challenge,
          code,
          granted: await grantSession(access, user, { context: challenge.context, mfa: true }, now),
        }
      },
      async run({ db, now, note }, { user, challenge, code, granted }) {
        if (!(await takeChallenge(db, challenge.id))) throw new Problem('invalid_mfa_session')
        const right =
          code.step !== undefined
            ? await store.spendTotpStep(db, user.id, code.step)
            : await store.spendRecoveryCode(db, user.id, code.recovery ?? '', now)
        if (!right)
          throw new Problem('invalid_mfa_code', undefined, refusedCode(user, orgOf(challenge.context)))
        await insertSession(db, granted.session, now)
        await recordLogin(db, user.id, now)
        const method = code.step !== undefined ? 'totp' : 'recovery_code'
        note({ orgId: orgOf(challenge.context), ...signsIn(user) })
        note({ details: { method, mfa: true } })
        return {
          user: identityOf(user),
          tokens: granted.tokens,
          mfaRequired: false,
          mfaEnrollmentRequired: false,
        }
      },
    }),
  }
}

const noSetup = 'No pending MFA setup'

function requireMfaOn(mfaOn: boolean): void {
  if (!mfaOn) throw new Problem('not_found')
}

const refusedCode = (user: { id: string; email: string }, orgId?: string | null) => ({
  refusal: {
    action: loginFailed,
    actorId: user.id,
    actorEmail: user.email,
    details: { reason: 'mfa_invalid_code' },
    ...(orgId !== undefined && { orgId }),
  },
})
