import { invalid, Problem } from '../../core/errors.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import {
  checkMfaOn,
  type FactorDependencies,
  factorLimitKey,
  mfaChanged,
  mfaNotEnabled,
} from '../factors/handlers.ts'
import { reauthenticate } from '../factors/proof.ts'
import { newRecoveryCodes, recoveryHash } from '../factors/recovery.ts'
import { enableFactor, findMfaPolicy, setPhone } from '../factors/store.ts'
import { notifyFactorsChanged } from '../notifications.ts'
import { contextOfScope } from '../rules.ts'
import { getPendingChallenge } from '../sessions/challenge.ts'
import { type GrantedSession, grantSession } from '../sessions/grant.ts'
import { loginFacts } from '../sessions/identity.ts'
import { startSession } from '../sessions/tenants.ts'
import { checkCanManageFactors } from '../sso-only.ts'
import { getUser, type User } from '../store.ts'
import type { phones } from './contract.ts'

type Phones = typeof phones

/** Phone numbers: proving one, and using it as second factor. */
export const phoneHandlers = (keys: FactorDependencies): HandlersOf<Phones> => {
  const { access, cipher, guard, phoneCodes, mfaOn } = keys

  return {
    verifyPhone: inSteps<Phones['verifyPhone'], void>({
      async prepare(call) {
        const { storage, caller, body, limit, claim } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        mayChange(user, caller)
        await checkCanManageFactors(storage.read, user, caller)
        await reauthenticate(guard, user, body.currentPassword, call)
        await claim()
        await limit('PHONE', body.phoneNumber)
        await limit('PHONE', user.id)
        await phoneCodes.send(body.phoneNumber)
      },
      async run({ caller, note }) {
        note({ resourceId: caller.id, resourceName: caller.email })
        return { success: true, message: 'Verification code sent' }
      },
    }),

    confirmPhone: inSteps<Phones['confirmPhone'], User>({
      async prepare(call) {
        const { storage, caller, body, limit } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        mayChange(user, caller)
        await checkCanManageFactors(storage.read, user, caller)
        await limit('MFA', factorLimitKey(caller))
        await reauthenticate(guard, user, body.currentPassword, call)
        const code = body.code.trim()
        if (!/^\d{4,10}$/.test(code) || !(await phoneCodes.check(body.phoneNumber, code))) {
          const refusal = { action: 'auth.phone.verify.failed', actorId: user.id, actorEmail: user.email }
          throw new Problem('invalid_verification_code', undefined, { refusal })
        }
        return user
      },
      async run({ db, body, now, note }, user) {
        if (!(await setPhone(db, user, body.phoneNumber, now))) throw mfaChanged()
        note({ resourceId: user.id, resourceName: user.email })
        return { success: true, message: 'Phone number verified' }
      },
    }),

    enableSms: inSteps<Phones['enableSms'], { user: User; granted: GrantedSession }>({
      async prepare(call) {
        const { storage, caller, body, now } = call
        checkMfaOn(mfaOn)
        const user = await getUser(storage.read, caller.id)
        if (user.mfaMethod !== null)
          throw new Problem('conflict', 'MFA is already enabled. Disable it first to switch methods.')
        if (user.phoneNumber === null || !user.phoneVerified)
          throw mfaNotEnabled('Phone number must be verified before enabling SMS MFA')
        const policy = await findMfaPolicy(storage.read, user.id, contextOfScope(caller.scope))
        if (!policy.smsAllowed) throw new Problem('sms_not_allowed')
        await checkCanManageFactors(storage.read, user, caller)
        await reauthenticate(guard, user, body.currentPassword, call)
        await call.limit('NOTICE', user.id)
        const renewed = { ...user, mfaEpoch: user.mfaEpoch + 1 }
        const { ssoProviderId, endsBy } = caller
        const session = { context: contextOfScope(caller.scope), mfa: false, ssoProviderId, endsBy }
        return { user, granted: await grantSession(access, renewed, session, now) }
      },
      async run({ db, now, note }, { user, granted }) {
        const recoveryCodes = newRecoveryCodes()
        const hashes = recoveryCodes.map((code) => recoveryHash(keys.recoveryPepper, code))
        if (!(await enableFactor(db, user, { method: 'sms' }, hashes, now))) throw mfaChanged()
        await startSession(db, granted.session, now)
        await notifyFactorsChanged(db, cipher, user, 'Codes by SMS were turned on', now)
        note({ resourceId: user.id, resourceName: user.email, details: { method: 'sms' } })
        return {
          success: true,
          message: 'SMS MFA enabled successfully',
          recoveryCodes,
          tokens: granted.tokens,
        }
      },
    }),

    sendSms: inSteps<Phones['sendSms'], { user: User; orgId: string | null }>({
      async prepare({ storage, body, now, limit, claim }) {
        checkMfaOn(mfaOn)
        const { challenge, user, orgId } = await getPendingChallenge(storage.read, body.tempToken, now)
        const { phoneNumber } = user
        if (user.mfaMethod !== 'sms' || phoneNumber === null) {
          const message = 'No phone number configured for SMS MFA'
          throw invalid([{ path: 'body.tempToken', message }], message)
        }
        await claim()
        await limit('SMS', challenge.tokenHash)
        await limit('SMS_PHONE', phoneNumber)
        await phoneCodes.send(phoneNumber)
        return { user, orgId }
      },
      async run({ note }, { user, orgId }) {
        note({ orgId, ...loginFacts(user) })
        return { success: true, message: 'SMS code sent' }
      },
    }),
  }
}

/** A person with a factor has to prove it before its phone number is changed. @throws mfa_required */
function mayChange(user: User, caller: { mfa: boolean }): void {
  if (user.mfaMethod !== null && !caller.mfa) throw new Problem('mfa_required')
}
