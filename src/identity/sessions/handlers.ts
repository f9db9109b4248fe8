import { foldEmail } from '../../core/email.ts'
import { Problem } from '../../core/errors.ts'
import { zeroId } from '../../core/ids.ts'
import { newId } from '../../core/new-id.ts'
import { addSeconds } from '../../core/time.ts'
import { type HandlersOf, inSteps, type UserCaller } from '../../handler.ts'
import { findRoleName, listMemberships } from '../memberships.ts'
import type { PasswordGuard } from '../password-guard/guard.ts'
import { requiresMfaEnrollment } from '../principal.ts'
import {
  chooseContext,
  contextOfScope,
  notifiedOrgAmong,
  orgOfContext,
  type SessionContext,
} from '../rules.ts'
import { canManageAccount, filterPasswordMemberships, isSsoOnly, listSsoOnly } from '../sso-only.ts'
import { endSessions, findUser, findUserByEmail, getUser, type User } from '../store.ts'
import type { sessions } from './contract.ts'
import { emitLogin, emitLogout } from './events.ts'
import { type GrantedSession, grantSession } from './grant.ts'
import { loginFacts, loginFailedAction, toIdentity, toSignInReply } from './identity.ts'
import { checkNotSsoSession, classifyRefresh, hasEnded } from './rules.ts'
import * as store from './store.ts'
import { startSession } from './tenants.ts'
import {
  type AccessTokens,
  newToken,
  refreshCookie,
  refreshSeconds,
  sessionOfRefreshToken,
  tokenHash,
} from './tokens.ts'

type Sessions = typeof sessions

/** Where a caller acts, and what it may do there. */
const reachOf = ({ scope, permissions }: Pick<UserCaller, 'scope' | 'permissions'>) => ({
  scope: scope.kind,
  partnerId: scope.kind === 'partner' ? scope.partnerId : null,
  orgId: scope.kind === 'organization' ? scope.orgId : null,
  permissions: [...permissions].sort(),
})

const challengeSeconds = 5 * 60

export type SessionDependencies = {
  access: AccessTokens
  guard: PasswordGuard
  /** ENABLE_2FA */
  mfaOn: boolean
}

export const sessionHandlers = (keys: SessionDependencies): HandlersOf<Sessions> => {
  const { access, guard, mfaOn } = keys

  const login = inSteps<Sessions['login'], Awaited<ReturnType<typeof verifyLogin>>>({
    prepare: (call) => verifyLogin(call),

    async run({ db, ip, now, note }, { user, orgId, challenge, granted, demanded, breaksGlass }) {
      note({ orgId, ...loginFacts(user), ...(breaksGlass && { details: { breaksGlass } }) })
      if (challenge) {
        await store.lockAccount(db, granted.session)
        await store.insertChallenge(db, challenge.row)
        note({ action: 'auth.mfa.challenge', details: { method: 'password' } })
        const mfaMethod = user.mfaMethod as 'totp' | 'sms'
        return { user: null, tokens: null, mfaRequired: true, tempToken: challenge.tempToken, mfaMethod }
      }
      await startSession(db, granted.session, now)
      await store.recordLogin(db, user.id, now)
      const how = { method: 'password', mfa: false }
      await emitLogin(db, user, orgId, { ...how, ip, now })
      note({ details: how })
      return toSignInReply(user, granted, demanded)
    },
  })

  type LoginCall = Parameters<Extract<HandlersOf<Sessions>['login'], { prepare: unknown }>['prepare']>[0]

  /** Every refusal is the same 401 after the same work; only the audit log has the reason. */
  async function verifyLogin({ storage, body, cookies, ip, isLocal, now, limit }: LoginCall) {
    await limit('LOGIN_ACCOUNT', `${ip} ${foldEmail(body.email)}`)
    const user = await findUserByEmail(storage.read, body.email)
    const proof = body.refreshToken ?? cookies[refreshCookie]
    const known =
      proof !== undefined && (await store.isKnownClient(storage.read, proof, user?.id ?? zeroId, now))
    const { email, password } = body
    const attempt = { email, password, known, ...(user && { user }) }
    const answer = await guard.attempt({ storage, ip, isLocal, now }, attempt)
    const memberships = await listMemberships(storage.read, user?.id ?? zeroId)
    const ssoOnly = await listSsoOnly(storage.read, user?.id ?? zeroId)
    const isSystem = user?.isSystem ?? false
    const context = chooseContext(isSystem, filterPasswordMemberships(memberships, ssoOnly), body)
    // The context of this sign-in if all memberships accepted passwords.
    const wanted = context ?? chooseContext(isSystem, memberships, body)
    const orgId = wanted ? notifiedOrgAmong(wanted, memberships) : null

    const reason = !user
      ? 'unknown_account'
      : typeof answer === 'object'
        ? answer.reason
        : answer === 'wrong'
          ? 'invalid_password'
          : user.status !== 'active'
            ? 'account_inactive'
            : context
              ? undefined
              : wanted
                ? 'sso_required'
                : 'tenant_inactive'
    if (!user || !context || reason !== undefined) {
      const refusal = {
        action: loginFailedAction,
        orgId,
        actorEmail: body.email,
        ...(user && { actorId: user.id }),
        details: { reason },
      }
      throw new Problem('invalid_credentials', undefined, { refusal })
    }

    const demanded = mfaOn && (await requiresMfaEnrollment(storage.read, user, context))
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
              expiresAt: addSeconds(now, challengeSeconds),
            },
          }
        : undefined
    return {
      user,
      orgId,
      challenge,
      demanded,
      // Emergency access for when no provider responds; it shows in the audit log.
      breaksGlass: context.kind === 'system' && ssoOnly.size > 0,
      granted: await grantSession(access, user, { context, mfa: false, ssoProviderId: null }, now),
    }
  }

  return {
    login,

    async logout({ db, caller, body: { everywhere }, ip, now, note }) {
      note({ resourceId: caller.id, resourceName: caller.email, details: { everywhere } })
      // A session that began at a provider may end sessions of that provider only.
      if (!everywhere) await store.revokeSession(db, caller.sessionId, now)
      else if (caller.ssoProviderId === null) await endSessions(db, caller.id, now)
      else await store.revokeProviderSessions(db, caller.id, caller.ssoProviderId, now)
      // A person who has not accepted the invitation is no member, so the organization is not notified.
      const orgId = caller.barred === 'invitation_pending' ? null : orgOfContext(contextOfScope(caller.scope))
      await emitLogout(db, caller, orgId, { mfa: caller.mfa, ip, now })
      return { success: true }
    },

    refresh: inSteps<Sessions['refresh'], { spent: string; granted: GrantedSession }>({
      async prepare({ storage, body, now }) {
        const refused = new Problem('invalid_refresh_token')
        const spent = tokenHash(body.refreshToken ?? '')
        const session = await store.findSession(storage.read, sessionOfRefreshToken(body.refreshToken ?? ''))
        if (!session || hasEnded(session, now)) throw refused
        if (session.ssoStatus !== null && session.ssoStatus !== 'active') throw refused
        if (addSeconds(session.rotatedAt, refreshSeconds) <= now) throw refused
        const user = await findUser(storage.read, session.userId)
        if (user?.status !== 'active') throw refused
        // Covers a session that began just as passwords were switched off.
        const byPassword = session.ssoProviderId === null
        if (byPassword && (await isSsoOnly(storage.read, user.id, session.context))) throw refused
        const use = classifyRefresh(session, spent, now)
        if (use === 'raced') throw new Problem('refresh_raced')
        if (use === 'reused') {
          await storage.write((tx) => store.revokeSession(tx, session.id, now))
          const { id: actorId, email: actorEmail } = user
          const orgId = notifiedOrgAmong(session.context, await listMemberships(storage.read, user.id))
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

    async caller({ caller }) {
      const { kind, id, name } = caller
      const email = caller.kind === 'user' ? caller.email : null
      const run = caller.kind === 'workload' ? caller.run : null
      return { kind, id, name, email, run, ...reachOf(caller) }
    },

    async me({ db, caller, scope }) {
      const user = await getUser(db, caller.id)
      const tenants = await store.listTenants(db, user.id)
      const bySso = caller.ssoProviderId !== null
      const whole = await canManageAccount(db, user, caller)
      const name = caller.roleId === null ? undefined : await findRoleName(db, caller.roleId)
      return {
        user: { ...toIdentity(user), ...(!whole && { phoneVerified: false, phoneLast4: null }) },
        ...reachOf(caller),
        role: caller.roleId !== null && name !== undefined ? { id: caller.roleId, name } : null,
        memberships: bySso ? tenants.filter(({ id }) => id === orgOfContext(contextOfScope(scope))) : tenants,
        mfaVerified: caller.mfa,
        mfaVerifiedAt: caller.mfa ? caller.provedAt : null,
      }
    },

    switch: inSteps<
      Sessions['switch'],
      {
        user: User
        context: SessionContext
        orgId: string | null
        demanded: boolean
        granted: GrantedSession
      }
    >({
      async prepare({ storage, caller, body, now }) {
        checkNotSsoSession(caller)
        const user = await getUser(storage.read, caller.id)
        const all = await listMemberships(storage.read, user.id)
        const memberships = filterPasswordMemberships(all, await listSsoOnly(storage.read, user.id))
        const context = chooseContext(user.isSystem, memberships, body)
        if (!context && chooseContext(user.isSystem, all, body)) throw new Problem('sso_required')
        if (!context) {
          throw user.isSystem
            ? new Problem('not_found')
            : new Problem('forbidden', 'You have no membership there')
        }
        const demanded = mfaOn && (await requiresMfaEnrollment(storage.read, user, context))
        // The factor belongs to the person, not to the membership: a verified factor stays verified.
        const { mfa, ssoProviderId, provedAt } = caller
        // The session does not last longer either, since no credential was checked.
        const endsBy = (await store.findSession(storage.read, caller.sessionId))?.expiresAt
        const session = { context, mfa, ssoProviderId, provedAt, ...(endsBy && { endsBy }) }
        const granted = await grantSession(access, user, session, now)
        return { user, context, orgId: notifiedOrgAmong(context, all), demanded, granted }
      },
      async run({ db, caller, now, note }, { user, context, orgId, demanded, granted }) {
        await store.endReplacedSession(db, caller.sessionId, now)
        await startSession(db, granted.session, now)
        note({
          orgId,
          resourceId: user.id,
          resourceName: user.email,
          details: { to: context },
        })
        return toSignInReply(user, granted, demanded)
      },
    }),
  }
}
