import type { Cipher } from '../core/cipher.ts'
import { invalid, Problem } from '../core/errors.ts'
import { zeroId } from '../core/ids.ts'
import { newId } from '../core/new-id.ts'
import { type Instant, later } from '../core/time.ts'
import { type HandlersOf, inSteps, type UserCaller } from '../handler.ts'
import type * as contract from './contract.ts'
import { findGrants, findMembership, findRoleName, listMemberships } from './memberships.ts'
import { checkPassword } from './password.ts'
import { looksLikeRecoveryCode, newRecoveryCodes, recoveryHash } from './recovery.ts'
import {
  type Context,
  chooseContext,
  enrollUrl,
  foldEmail,
  isLocked,
  judgeRefresh,
  lockout,
} from './rules.ts'
import * as store from './store.ts'
import {
  type AccessTokens,
  accessSeconds,
  familySeconds,
  newToken,
  refreshSeconds,
  refreshToken,
  sessionOfRefreshToken,
  tokenHash,
} from './tokens.ts'
import { newTotpSecret, totpStep, totpUrl } from './totp.ts'

type Auth = typeof contract.auth

/** What signing in needs from the outside. */
export type Keys = {
  access: AccessTokens
  cipher: Cipher
  recoveryPepper: string
  /** ENABLE_2FA: without it there are no factors, and the routes for them answer 404. */
  mfaOn: boolean
}

const challengeSeconds = 5 * 60
const setupSeconds = 10 * 60
const totpPlace = (userId: string) => `users.totp_secret.${userId}`
const setupPlace = (userId: string) => `mfa_setups.secret.${userId}`

export const authHandlers = (keys: Keys): HandlersOf<Auth> => {
  const { cipher, mfaOn } = keys

  /** Tokens for a session that the transaction will store. */
  async function mint(user: store.User, context: Context, mfa: boolean, now: Instant, sessionId = newId()) {
    const { id: userId, authEpoch, mfaEpoch } = user
    const refresh = refreshToken(sessionId)
    const access = await keys.access.sign(
      { userId, sessionId, context, authEpoch, mfaEpoch, mfa },
      new Date(now),
    )
    return {
      session: {
        id: sessionId,
        userId,
        context,
        mfa,
        tokenHash: tokenHash(refresh),
        expiresAt: later(now, familySeconds),
      },
      tokens: { accessToken: access, refreshToken: refresh, expiresInSeconds: accessSeconds },
    }
  }

  /** The step of a right authenticator code, the hash of a possible recovery code, or neither. */
  function readCode(user: store.User, code: string, now: Instant): { step?: number; recovery?: string } {
    const text = code.trim()
    if (looksLikeRecoveryCode(text)) return { recovery: recoveryHash(keys.recoveryPepper, text) }
    if (user.totpSecret === null) return {}
    const step = totpStep(cipher.open(user.totpSecret, totpPlace(user.id)), text, now, user.totpStep)
    return step === undefined ? {} : { step }
  }

  const login = inSteps<Auth['login'], Awaited<ReturnType<typeof passTheDoor>>>({
    prepare: (call) => passTheDoor(call),

    async run({ db, now, note }, { user, orgId, challenge, granted, demanded }) {
      note({ orgId, ...signsIn(user) })
      if (challenge) {
        await store.insertChallenge(db, challenge.row)
        note({ action: 'auth.mfa.challenge', details: { method: 'password' } })
        const mfaMethod = user.mfaMethod as 'totp' | 'sms'
        return { user: null, tokens: null, mfaRequired: true, tempToken: challenge.tempToken, mfaMethod }
      }
      await store.insertSession(db, granted.session, now)
      await store.recordLogin(db, user.id, now)
      note({ details: { method: 'password', mfa: false } })
      const enrol = demanded ? { enrollUrl } : {}
      return {
        user: identityOf(user),
        tokens: granted.tokens,
        mfaRequired: false,
        mfaEnrollmentRequired: demanded,
        ...enrol,
      }
    },
  })

  type LoginCall = Parameters<Extract<HandlersOf<Auth>['login'], { prepare: unknown }>['prepare']>[0]

  /** Every refusal is the same 401 after the same work; only the audit log knows the reason. */
  async function passTheDoor({ storage, body, ip, now, limit }: LoginCall) {
    limit('LOGIN_ACCOUNT', `${ip} ${foldEmail(body.email)}`)
    const user = await store.findUserByEmail(storage.read, body.email)
    const right = await checkPassword(user?.passwordHash ?? null, body.password)
    const memberships = await listMemberships(storage.read, user?.id ?? zeroId)
    const context = chooseContext(user?.isSystem ?? false, memberships, body)
    const orgId = context?.kind === 'organization' ? context.orgId : null

    const reason = !user
      ? 'unknown_account'
      : isLocked(user, now)
        ? 'account_locked'
        : !right
          ? 'invalid_password'
          : user.status !== 'active'
            ? 'account_inactive'
            : context
              ? undefined
              : 'tenant_inactive'
    if (!user || !context || reason !== undefined) {
      const counted = reason === 'invalid_password' ? user!.id : zeroId
      await storage.write((tx) => store.countWrongPassword(tx, counted, later(now, lockout.seconds)))
      const refusal = {
        action: loginFailed,
        orgId,
        actorEmail: body.email,
        ...(user && { actorId: user.id }),
        details: { reason },
      }
      throw new Problem('invalid_credentials', undefined, { refusal })
    }

    const membership = await findMembership(storage.read, user.id, context)
    const forced = membership && (await findGrants(storage.read, membership.roleId)).forceMfa
    const demanded = mfaOn && user.mfaMethod === null && Boolean(forced || membership?.requiresMfa)
    const tempToken = newToken()
    const challenge =
      mfaOn && user.mfaMethod !== null
        ? {
            tempToken,
            row: {
              id: newId(),
              tokenHash: tokenHash(tempToken),
              userId: user.id,
              context,
              mfaEpoch: user.mfaEpoch,
              expiresAt: later(now, challengeSeconds),
            },
          }
        : undefined
    return { user, orgId, challenge, demanded, granted: await mint(user, context, false, now) }
  }

  return {
    login,

    async logout({ db, caller, now, note }) {
      note({ resourceId: caller.id, resourceName: caller.email })
      await store.endSessions(db, caller.id, now)
      return { success: true }
    },

    refresh: inSteps<Auth['refresh'], { spent: string; granted: Awaited<ReturnType<typeof mint>> }>({
      async prepare({ storage, body, now }) {
        const refused = new Problem('invalid_refresh_token')
        const spent = tokenHash(body.refreshToken ?? '')
        const session = await store.findSession(storage.read, sessionOfRefreshToken(body.refreshToken ?? ''))
        if (!session || session.revokedAt !== null || session.expiresAt <= now) throw refused
        if (later(session.rotatedAt, refreshSeconds) <= now) throw refused
        const user = await store.findUser(storage.read, session.userId)
        if (user?.status !== 'active') throw refused
        const use = judgeRefresh(session, spent, now)
        if (use === 'raced') throw new Problem('refresh_raced')
        if (use === 'reused') {
          await storage.write((tx) => store.revokeSession(tx, session.id, now))
          const { id: actorId, email: actorEmail } = user
          const orgId = session.context.kind === 'organization' ? session.context.orgId : null
          const details = { reason: 'refresh_token_reused', sessionId: session.id }
          throw new Problem('invalid_refresh_token', undefined, {
            refusal: { action: 'auth.refresh.reuse_detected', orgId, actorId, actorEmail, details },
          })
        }
        return { spent, granted: await mint(user, session.context, session.mfa, now, session.id) }
      },
      async run({ db, now }, { spent, granted: { session, tokens } }) {
        const first = await store.rotateSession(db, session.id, spent, session.tokenHash, now)
        if (!first) throw new Problem('refresh_raced')
        return { tokens }
      },
    }),

    async me({ db, caller, scope }) {
      const user = await store.findUser(db, caller.id)
      if (!user) throw new Problem('invalid_token')
      const name = caller.roleId === null ? undefined : await findRoleName(db, caller.roleId)
      return {
        user: identityOf(user),
        scope: scope.kind,
        partnerId: scope.kind === 'partner' ? scope.partnerId : null,
        orgId: scope.kind === 'organization' ? scope.orgId : null,
        role: caller.roleId !== null && name !== undefined ? { id: caller.roleId, name } : null,
        permissions: [...caller.permissions].sort(),
        mfaVerified: caller.mfa,
      }
    },

    setupMfa: inSteps<Auth['setupMfa'], { secret: string; otpAuthUrl: string; qrCodeDataUrl: string }>({
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
      Auth['enableMfa'],
      {
        user: store.User
        totp: Parameters<typeof store.enableTotp>[2]
        granted: Awaited<ReturnType<typeof mint>>
      }
    >({
      async prepare({ storage, caller, body, now, limit }) {
        requireMfaOn(mfaOn)
        limit('MFA', caller.id)
        const setup = await store.findMfaSetup(storage.read, caller.id)
        const user = await store.findUser(storage.read, caller.id)
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
        return { user, totp, granted: await mint(renewed, contextOf(caller), true, now) }
      },
      async run({ db, caller, now, note }, { user, totp, granted }) {
        if (!(await store.enableTotp(db, user, totp, now)))
          throw new Problem('conflict', 'MFA was changed meanwhile')
        await store.insertSession(db, granted.session, now)
        note({ resourceId: caller.id, resourceName: caller.email })
        return { success: true, message: 'MFA enabled successfully', tokens: granted.tokens }
      },
    }),

    verifyMfa: inSteps<
      Auth['verifyMfa'],
      {
        user: store.User
        challenge: store.Challenge
        code: { step?: number; recovery?: string }
        granted: Awaited<ReturnType<typeof mint>>
      }
    >({
      async prepare({ storage, body, now, limit }) {
        requireMfaOn(mfaOn)
        const challenge = await store.findChallenge(storage.read, tokenHash(body.tempToken))
        const user = challenge && (await store.findUser(storage.read, challenge.userId))
        const live = challenge && challenge.expiresAt > now && user?.mfaEpoch === challenge.mfaEpoch
        if (!live || !user || user.status !== 'active') throw new Problem('invalid_mfa_session')
        limit('MFA', user.id)
        const code = readCode(user, body.code, now)
        if (code.step === undefined && code.recovery === undefined) {
          throw new Problem('invalid_mfa_code', undefined, refusedCode(user, orgOf(challenge.context)))
        }
        return { user, challenge, code, granted: await mint(user, challenge.context, true, now) }
      },
      async run({ db, now, note }, { user, challenge, code, granted }) {
        if (!(await store.takeChallenge(db, challenge.id))) throw new Problem('invalid_mfa_session')
        const right =
          code.step !== undefined
            ? await store.spendTotpStep(db, user.id, code.step)
            : await store.spendRecoveryCode(db, user.id, code.recovery ?? '', now)
        if (!right)
          throw new Problem('invalid_mfa_code', undefined, refusedCode(user, orgOf(challenge.context)))
        await store.insertSession(db, granted.session, now)
        await store.recordLogin(db, user.id, now)
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

/** Whom the audit entry of a sign-in names. */
const signsIn = ({ id, email }: store.User) => ({
  actor: { kind: 'user' as const, id, email },
  resourceId: id,
  resourceName: email,
})

const noSetup = 'No pending MFA setup'
const loginFailed = 'user.login.failed'

function requireMfaOn(mfaOn: boolean): void {
  if (!mfaOn) throw new Problem('not_found')
}

const orgOf = (context: Context): string | null => (context.kind === 'organization' ? context.orgId : null)

const refusedCode = (user: { id: string; email: string }, orgId?: string | null) => ({
  refusal: {
    action: loginFailed,
    actorId: user.id,
    actorEmail: user.email,
    details: { reason: 'mfa_invalid_code' },
    ...(orgId !== undefined && { orgId }),
  },
})

function contextOf({ scope }: UserCaller): Context {
  if (scope.kind === 'partner') return { kind: 'partner', partnerId: scope.partnerId }
  return scope.kind === 'organization' ? { kind: 'organization', orgId: scope.orgId } : { kind: 'system' }
}

function identityOf(user: store.User) {
  return {
    id: user.id,
    email: user.email,
    name: user.name,
    avatarUrl: user.avatarUrl,
    status: user.status as 'active' | 'invited' | 'disabled',
    mfaEnabled: user.mfaMethod !== null,
    mfaMethod: user.mfaMethod as 'totp' | 'sms' | null,
    phoneVerified: user.phoneVerified,
    phoneLast4: user.phoneNumber?.slice(-4) ?? null,
    lastLoginAt: user.lastLoginAt,
    createdAt: user.createdAt,
  }
}
