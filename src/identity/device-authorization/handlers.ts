import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { addSeconds } from '../../core/time.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { deviceLink } from '../../messages/links.ts'
import type { Db } from '../../storage/open.ts'
import { factorLimitKey } from '../factors/handlers.ts'
import { checkRecentAuthentication, reauthenticationSeconds } from '../factors/proof.ts'
import { listMemberships } from '../memberships.ts'
import { requiresMfaEnrollment } from '../principal.ts'
import { contextOfScope, notifiedOrgAmong } from '../rules.ts'
import { emitLogin } from '../sessions/events.ts'
import { type GrantedSession, grantSession } from '../sessions/grant.ts'
import type { SessionDependencies } from '../sessions/handlers.ts'
import { loginFacts, toSignInReply } from '../sessions/identity.ts'
import { lockSession } from '../sessions/store.ts'
import { startSession } from '../sessions/tenants.ts'
import { newToken, tokenHash } from '../sessions/tokens.ts'
import { isSsoOnly } from '../sso-only.ts'
import { findUser, getUser, type User } from '../store.ts'
import type { deviceAuthorization } from './contract.ts'
import { authorizationSeconds, foldUserCode, newUserCode, pollSeconds } from './rules.ts'
import * as store from './store.ts'

type Entries = typeof deviceAuthorization

export type DeviceAuthorizationDependencies = SessionDependencies & { publicUrl: () => string }

type Granted = {
  id: string
  user: User
  orgId: string | null
  demanded: boolean
  granted: GrantedSession
}

const hashOfUserCode = (typed: string): string => tokenHash(foldUserCode(typed))

export const deviceAuthorizationHandlers = ({
  access,
  mfaOn,
  publicUrl,
}: DeviceAuthorizationDependencies): HandlersOf<Entries> => ({
  async startDeviceAuthorization({ db, body, ip, now }) {
    const [deviceCode, userCode] = [newToken(), newUserCode()]
    await store.insertAuthorization(db, {
      id: newId(),
      deviceCodeHash: tokenHash(deviceCode),
      userCodeHash: hashOfUserCode(userCode),
      client: body.client ?? 'a program that gives no name',
      ip,
      createdAt: now,
      expiresAt: addSeconds(now, authorizationSeconds),
    })
    return {
      deviceCode,
      userCode,
      verificationUrl: deviceLink(publicUrl()),
      expiresInSeconds: authorizationSeconds,
      intervalSeconds: pollSeconds,
    }
  },

  previewDeviceAuthorization: inSteps<Entries['previewDeviceAuthorization'], store.Authorization>({
    async prepare({ storage, caller, body, now, limit }) {
      await limit('DEVICE_CODE', factorLimitKey(caller))
      const by = { userCodeHash: hashOfUserCode(body.userCode) }
      const found = await store.findAuthorization(storage.read, by, now)
      if (found?.status !== 'pending') throw new Problem('invalid_user_code')
      return found
    },
    async run(_, { client, ip, createdAt, expiresAt }) {
      return { client, ip, createdAt, expiresAt }
    },
  }),

  decideDeviceAuthorization: inSteps<Entries['decideDeviceAuthorization'], undefined>({
    async prepare({ caller, body, now, limit }) {
      await limit('DEVICE_CODE', factorLimitKey(caller))
      // Otherwise a stolen access token, which lasts minutes, could make itself a session that lasts for days.
      if (body.decision === 'approve') checkRecentAuthentication(caller, now)
      return undefined
    },
    async run({ db, caller, body: { userCode, decision }, now, note }) {
      // Whoever sends a body slowly was admitted long ago: a session that has ended since approves nothing.
      const endsBy = await lockSession(db, caller.sessionId, now)
      const { authEpoch, mfaEpoch } = await getUser(db, caller.id)
      const { id: userId, mfa, ssoProviderId } = caller
      const approval: store.Approval = {
        userId,
        context: contextOfScope(caller.scope),
        mfa,
        ssoProviderId,
        authEpoch,
        mfaEpoch,
        // A terminal proves nothing: what needs a recent sign-in needs one there.
        provedAt: addSeconds(now, -reauthenticationSeconds - 1),
        // No credential is checked for the new session, so it lasts no longer than the one that approves it.
        endsBy,
      }
      const granted = decision === 'approve' ? approval : null
      const asked = await store.decide(db, hashOfUserCode(userCode), granted, now)
      if (!asked) throw new Problem('invalid_user_code')
      if (decision === 'deny') note({ action: 'auth.device.deny' })
      const { client, ip } = asked
      note({ resourceId: userId, resourceName: caller.email, details: { client, requestedFrom: ip } })
      return { success: true }
    },
  }),

  pollDeviceAuthorization: inSteps<Entries['pollDeviceAuthorization'], Granted>({
    async prepare({ storage, body, now, limit }) {
      const deviceCodeHash = tokenHash(body.deviceCode)
      limit('DEVICE_POLL', deviceCodeHash)
      const found = await store.findAuthorization(storage.read, { deviceCodeHash }, now)
      if (!found) throw new Problem('invalid_device_code')
      if (found.status === 'denied') throw new Problem('access_denied')
      if (!found.approval) throw new Problem('authorization_pending')
      const { approval } = found
      const user = await approverOf(storage.read, approval)
      const { context } = approval
      const memberships = await listMemberships(storage.read, user.id)
      return {
        id: found.id,
        user,
        orgId: notifiedOrgAmong(context, memberships),
        demanded: mfaOn && (await requiresMfaEnrollment(storage.read, user, context)),
        granted: await grantSession(access, user, approval, now),
      }
    },
    async run({ db, ip, now, note }, { id, user, orgId, demanded, granted }) {
      if (!(await store.consumeAuthorization(db, id))) throw new Problem('invalid_device_code')
      await startSession(db, granted.session, now)
      const how = { method: 'device', mfa: granted.session.mfa }
      await emitLogin(db, user, orgId, { ...how, ip, now })
      note({ orgId, ...loginFacts(user), details: how })
      return toSignInReply(user, granted, demanded)
    },
  }),
})

/** Whoever approved it, unless something has ended their sessions since. @throws invalid_device_code */
async function approverOf(
  db: Db,
  {
    userId,
    authEpoch,
    mfaEpoch,
    context,
    ssoProviderId,
    ssoStatus,
  }: NonNullable<store.Authorization['approval']>,
): Promise<User> {
  const user = await findUser(db, userId)
  const isSame = user?.authEpoch === authEpoch && user.mfaEpoch === mfaEpoch
  const isAllowed = ssoProviderId === null ? !(await isSsoOnly(db, userId, context)) : ssoStatus === 'active'
  if (user?.status !== 'active' || !isSame || !isAllowed) throw new Problem('invalid_device_code')
  return user
}
