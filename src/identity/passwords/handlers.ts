import type { Cipher } from '../../core/cipher.ts'
import { foldEmail } from '../../core/email.ts'
import { invalid, Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { reauthenticate } from '../factors/proof.ts'
import { notifyPasswordChanged } from '../notifications.ts'
import type { PasswordGuard } from '../password-guard/guard.ts'
import { hashPassword } from '../password-hash.ts'
import { loginFacts } from '../sessions/identity.ts'
import { tokenHash } from '../sessions/tokens.ts'
import { checkCanManageAccount, isPasswordUnusable, isResetUnusable } from '../sso-only.ts'
import { findUser, getUser, markEmailProved, type User } from '../store.ts'
import { clearUnprovedFactors } from '../users/store.ts'
import type { passwords } from './contract.ts'
import * as store from './store.ts'
import { checkStrength } from './strength.ts'

type Passwords = typeof passwords
type Renewal = { user: User; passwordHash: string }

const ssoRequired = (what: string): Problem =>
  new Problem('sso_required', `${what} is disabled because your organization requires SSO.`)

export const passwordHandlers = ({
  cipher,
  guard,
}: {
  cipher: Cipher
  guard: PasswordGuard
}): HandlersOf<Passwords> => {
  /** Sets the new password, ends every session, and mails the owner. */
  async function renew(db: Db, { user, passwordHash }: Renewal, now: Instant): Promise<void> {
    await store.setPassword(db, user.id, passwordHash, now)
    await notifyPasswordChanged(db, cipher, user, now)
  }

  return {
    forgotPassword: inSteps<Passwords['forgotPassword'], void>({
      async prepare({ body, limit }) {
        // A caller who uses up this limit has sent the holder a link that works for as long as the limit lasts.
        await limit('LETTER', `password-reset ${foldEmail(body.email)}`)
      },
      async run({ db, body, now }) {
        await store.insertResetRequest(db, body.email, now)
        return { success: true, message: 'If this email exists, a reset link will be sent.' }
      },
    }),

    resetPassword: inSteps<Passwords['resetPassword'], Renewal>({
      async prepare({ storage, body, now }) {
        const reset = await store.findReset(storage.read, tokenHash(body.token), now)
        const user = reset && (await findUser(storage.read, reset.userId))
        if (user?.status !== 'active') throw new Problem('invalid_reset_token')
        if (await isResetUnusable(storage.read, user)) throw ssoRequired('Password reset')
        await checkStrength(body.password, 'body.password', [user.email, user.name])
        return { user, passwordHash: await hashPassword(body.password) }
      },
      async run({ db, body, ip, now, note }, renewal) {
        if (!(await store.consumeReset(db, tokenHash(body.token)))) throw new Problem('invalid_reset_token')
        const { user } = renewal
        await clearUnprovedFactors(db, user, now)
        await renew(db, renewal, now)
        await guard.resetByProof(db, user, ip, now)
        await markEmailProved(db, user.id, now)
        note(loginFacts(renewal.user))
        return { success: true, message: 'Password reset successfully' }
      },
    }),

    changePassword: inSteps<Passwords['changePassword'], Renewal>({
      async prepare(call) {
        const { storage, caller, body } = call
        const user = await getUser(storage.read, caller.id)
        await checkCanManageAccount(storage.read, user, caller)
        if (await isPasswordUnusable(storage.read, user)) throw ssoRequired('Password change')
        if (user.passwordHash === null) {
          const message = 'Password authentication is not available for this account'
          throw invalid([{ path: 'body.currentPassword', message }], message)
        }
        await reauthenticate(guard, user, body.currentPassword, call)
        // A limit of its own: an attacker with a session alone cannot use up what the holder needs to end that
        // session.
        await call.limit('NOTICE', `password ${user.id}`)
        if (body.newPassword === body.currentPassword) {
          const message = 'must not be the current password'
          throw invalid([{ path: 'body.newPassword', message }])
        }
        await checkStrength(body.newPassword, 'body.newPassword', [user.email, user.name])
        return { user, passwordHash: await hashPassword(body.newPassword) }
      },
      async run({ db, now, note }, renewal) {
        await renew(db, renewal, now)
        note({ resourceId: renewal.user.id, resourceName: renewal.user.email })
        return { success: true, message: 'Password changed successfully' }
      },
    }),
  }
}
