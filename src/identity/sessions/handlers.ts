import { Problem } from '../../core/errors.ts'
import { zeroId } from '../../core/ids.ts'
import { newId } from '../../core/new-id.ts'
import { later } from '../../core/time.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { findGrants, findMembership, findRoleName, listMemberships } from '../memberships.ts'
import { checkPassword } from '../password.ts'
import { chooseContext, enrollUrl, foldEmail, orgOf } from '../rules.ts'
import { endSessions, findUser, findUserByEmail } from '../store.ts'
import type { sessions } from './contract.ts'
import { type Granted, grantSession } from './grant.ts'
import { identityOf, loginFailed, signsIn } from './identity.ts'
import { isLocked, judgeRefresh, lockout } from './rules.ts'
import * as store from './store.ts'
import { type AccessTokens, newToken, refreshSeconds, sessionOfRefreshToken, tokenHash } from './tokens.ts'

type Sessions = typeof sessions

const challengeSeconds = 5 * 60

/** `mfaOn`: ENABLE_2FA. */
export const sessionHandlers = (keys: { access: AccessTokens; mfaOn: boolean }): HandlersOf<Sessions> => {
  const { access, mfaOn } = keys

  const login = inSteps<Sessions['login'], Awaited<ReturnType<typeof passTheDoor>>>({
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

  type LoginCall = Parameters<Extract<HandlersOf<Sessions>['login'], { prepare: unknown }>['prepare']>[0]

  /** Every refusal is the same 401 after the same work; only the audit log knows the reason. */
  async function passTheDoor({ storage, body, ip, now, limit }: LoginCall) {
    limit('LOGIN_ACCOUNT', `${ip} ${foldEmail(body.email)}`)
    const user = await findUserByEmail(storage.read, body.email)
    const right = await checkPassword(user?.passwordHash ?? null, body.password)
    const memberships = await listMemberships(storage.read, user?.id ?? zeroId)
    const context = chooseContext(user?.isSystem ?? false, memberships, body)
    const orgId = context ? orgOf(context) : null

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
    return {
      user,
      orgId,
      challenge,
      demanded,
      granted: await grantSession(access, user, { context, mfa: false }, now),
    }
  }

  return {
    login,

    async logout({ db, caller, now, note }) {
      note({ resourceId: caller.id, resourceName: caller.email })
      await endSessions(db, caller.id, now)
      return { success: true }
    },

    refresh: inSteps<Sessions['refresh'], { spent: string; granted: Granted }>({
      async prepare({ storage, body, now }) {
        const refused = new Problem('invalid_refresh_token')
        const spent = tokenHash(body.refreshToken ?? '')
        const session = await store.findSession(storage.read, sessionOfRefreshToken(body.refreshToken ?? ''))
        if (!session || session.revokedAt !== null || session.expiresAt <= now) throw refused
        if (later(session.rotatedAt, refreshSeconds) <= now) throw refused
        const user = await findUser(storage.read, session.userId)
        if (user?.status !== 'active') throw refused
        const use = judgeRefresh(session, spent, now)
        if (use === 'raced') throw new Problem('refresh_raced')
        if (use === 'reused') {
          await storage.write((tx) => store.revokeSession(tx, session.id, now))
          const { id: actorId, email: actorEmail } = user
          const orgId = orgOf(session.context)
          const details = { reason: 'refresh_token_reused', sessionId: session.id }
          throw new Problem('invalid_refresh_token', undefined, {
            refusal: { action: 'auth.refresh.reuse_detected', orgId, actorId, actorEmail, details },
          })
        }
        return { spent, granted: await grantSession(access, user, session, now) }
      },
      async run({ db, now }, { spent, granted: { session, tokens } }) {
        const first = await store.rotateSession(db, session.id, spent, session.tokenHash, now)
        if (!first) throw new Problem('refresh_raced')
        return { tokens }
      },
    }),

    async me({ db, caller, scope }) {
      const user = await findUser(db, caller.id)
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
  }
}
