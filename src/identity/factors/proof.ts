import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import { type Instant, secondsBetween } from '../../core/time.ts'
import type { CountEvent, UserCaller } from '../../handler.ts'
import type { PhoneCodes } from '../../messages/ports.ts'
import { decryptOrUnavailable } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { PasswordGuard } from '../password-guard/guard.ts'
import { loginFailedAction } from '../sessions/identity.ts'
import type { User } from '../store.ts'
import { isRecoveryCodeFormat, recoveryHash } from './recovery.ts'
import { consumeRecoveryCode, consumeTotpStep } from './store.ts'
import { totpStep } from './totp.ts'

export type ReauthenticationCall = {
  storage: Storage
  caller: UserCaller
  ip: string
  isLocal(): boolean
  now: Instant
  limit: CountEvent
}

export type ProofDependencies = {
  cipher: Cipher
  recoveryPepper: string
  /** Pepper of codes from before a rotation, or from processes that have rotated already. */
  otherRecoveryPepper: string | undefined
  phoneCodes: PhoneCodes
}

/** A code that matches one of the person's factors; a TOTP or recovery code still has to be consumed. */
export type FactorProof =
  | { method: 'totp'; step: number }
  /** Its stored hash under either pepper. */
  | { method: 'recovery_code'; hashes: string[] }
  | { method: 'sms' }

export const totpAad = (userId: string) => `users.totp_secret.${userId}` as const

/** The organization that a sign-in is reported to. */
type SignInOrg = { orgId: string | null }

/** @throws invalid_mfa_code, sms_not_configured, sms_unavailable, unavailable */
export async function verifyCode(
  db: Db,
  keys: ProofDependencies,
  user: User,
  code: string,
  now: Instant,
  signIn?: SignInOrg,
): Promise<FactorProof> {
  const text = code.trim()
  if (isRecoveryCodeFormat(text)) {
    const peppers = [keys.recoveryPepper, ...(keys.otherRecoveryPepper ? [keys.otherRecoveryPepper] : [])]
    return { method: 'recovery_code', hashes: peppers.map((pepper) => recoveryHash(pepper, text)) }
  }
  if (user.mfaMethod === 'sms' && user.phoneNumber !== null) {
    if (/^\d{4,10}$/.test(text) && (await keys.phoneCodes.check(user.phoneNumber, text)))
      return { method: 'sms' }
  } else if (user.totpSecret !== null) {
    // A secret that cannot be decrypted accepts no code; recovery codes still work, and an administrator can
    // reset the factor.
    const secret = await decryptOrUnavailable(db, keys.cipher, user.totpSecret, totpAad(user.id))
    const step = secret === undefined ? undefined : totpStep(secret, text, now, user.totpStep)
    if (step !== undefined) return { method: 'totp', step }
  }
  throw invalidCode(user, signIn)
}

/**
 * Consumes a proof in the transaction that acts on it, so that it works once.
 * @throws invalid_mfa_code when it was used already
 */
export async function consumeProof(
  db: Db,
  user: User,
  proof: FactorProof,
  now: Instant,
  signIn?: SignInOrg,
): Promise<void> {
  const spent =
    proof.method === 'totp'
      ? await consumeTotpStep(db, user.id, proof.step)
      : proof.method === 'sms' || (await consumeRecoveryCode(db, user.id, proof.hashes, now))
  if (!spent) throw invalidCode(user, signIn)
}

/** `signIn` is given for an attempted sign-in. */
export const invalidCode = (user: { id: string; email: string }, signIn?: SignInOrg): Problem =>
  new Problem('invalid_mfa_code', undefined, {
    refusal: {
      actorId: user.id,
      actorEmail: user.email,
      details: { reason: 'mfa_invalid_code' },
      ...(signIn && { action: loginFailedAction, orgId: signIn.orgId }),
    },
  })

/** How long an authentication allows actions that a stolen access token alone must not allow. */
export const reauthenticationSeconds = 10 * 60

/** @throws reauthentication_required */
export function checkRecentAuthentication({ provedAt }: { provedAt: Instant }, now: Instant): void {
  if (secondsBetween(provedAt, now) > reauthenticationSeconds) throw new Problem('reauthentication_required')
}

/**
 * Reauthenticates before a change of how a person signs in: a given password is checked; without one, the
 * session has to have begun, or proved a factor, recently.
 * @throws wrong_password, reauthentication_required, rate_limited
 */
export async function reauthenticate(
  guard: PasswordGuard,
  user: User,
  password: string | undefined,
  call: ReauthenticationCall,
): Promise<void> {
  if (password === undefined) return checkRecentAuthentication(call.caller, call.now)
  await call.limit('PASSWORD', user.id)
  await guard.confirm(call, user, password)
}
