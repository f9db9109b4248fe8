import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import type { Limits } from '../../core/limits.ts'
import { networkOfAddress } from '../../core/network.ts'
import { addSeconds, type Instant, secondsBetween } from '../../core/time.ts'
import type { UserCaller } from '../../handler.ts'
import { forgotLink } from '../../messages/links.ts'
import { queueMail } from '../../messages/queue.ts'
import { signInGuarded, signInStopped } from '../../messages/templates.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { User } from '../store.ts'
import {
  addFailure,
  clearFailures,
  decideAttempt,
  type GuardLimits,
  guardedUntil,
  type Lockout,
  type LockoutNotice,
  markTtlSeconds,
  unexpiredMarks,
} from './rules.ts'
import { deleteMarks, lockMarks, saveMarks, unknownAccountKey, userGuardKey } from './store.ts'
import { verifyPassword } from './verify.ts'

export type PasswordGuard = ReturnType<typeof createPasswordGuard>

export type PasswordGuardDependencies = {
  cipher: Cipher
  publicUrl: () => string
  limits: Limits
  /** Called for every attempt that was refused before the password counted. */
  onLockedOut(reason: Lockout['reason']): void
}

type GuardedUser = Pick<User, 'id' | 'email' | 'name' | 'passwordHash' | 'isSystem'>

/** A request that contains a password. */
type AttemptCall = { storage: Storage; ip: string; isLocal(): boolean; now: Instant }

/** The only code that checks passwords against accounts. */
export function createPasswordGuard({
  cipher,
  publicUrl,
  limits,
  onLockedOut: reportLockout,
}: PasswordGuardDependencies) {
  const guardLimits: GuardLimits = {
    network: limits.WRONG_PASSWORDS_NETWORK,
    account: limits.WRONG_PASSWORDS_ACCOUNT,
  }
  const ttlSeconds = markTtlSeconds(guardLimits)

  /**
   * Checks a password; a locked-out client gets the lockout for the right password too. Every case takes the
   * same work, also without an account. The decision is made after the password was checked, one attempt at a
   * time: of a thousand parallel attempts no more than the limits allow learn a result.
   */
  async function attempt(
    { storage, ip, isLocal, now }: AttemptCall,
    { user, email, password, known }: { user?: GuardedUser; email: string; password: string; known: boolean },
  ): Promise<'right' | 'wrong' | Lockout> {
    const right = await verifyPassword(user?.passwordHash ?? null, password)
    const key = user ? userGuardKey(user.id) : unknownAccountKey(email)
    const breaksGlass = user?.isSystem === true && isLocal()
    const network = networkOfAddress(ip)
    const outcome = await storage.write(
      async (tx) => {
        const before = unexpiredMarks(await lockMarks(tx, key, now), guardLimits, now)
        const decision = decideAttempt(before, { network, known, breaksGlass }, guardLimits, now)
        const isAdmitted = 'place' in decision
        const { marks, notice } =
          !isAdmitted || right
            ? { marks: isAdmitted ? clearFailures(before, decision.place) : before, notice: undefined }
            : addFailure(before, decision.place, guardLimits, now)
        const guarded = guardedUntil(marks, guardLimits.account, now) ?? null
        await saveMarks(tx, key, { marks, guardedUntil: guarded, expiresAt: addSeconds(now, ttlSeconds) })
        if (user && notice) await notifyHolder(tx, user, notice, network, now)
        return isAdmitted ? (right ? 'right' : 'wrong') : decision
      },
      { unsynced: true },
    )
    if (typeof outcome === 'object') reportLockout(outcome.reason)
    return outcome
  }

  async function notifyHolder(
    tx: Db,
    user: GuardedUser,
    notice: LockoutNotice,
    network: string,
    now: Instant,
  ): Promise<void> {
    const to = { to: user.email, name: user.name, url: forgotLink(publicUrl()) }
    const minutes = (limit: keyof GuardLimits) => Math.ceil((guardLimits[limit]?.seconds ?? 0) / 60)
    const mail =
      notice === 'network'
        ? signInStopped({ ...to, network, minutes: minutes('network') })
        : signInGuarded({ ...to, minutes: minutes('account') })
    await queueMail(tx, cipher, mail, now, addSeconds(now, 3600))
  }

  return {
    attempt,

    /**
     * Checks the password of a signed-in person. Their session counts as a known client, unless it began at an
     * identity provider.
     * @throws wrong_password, rate_limited
     */
    async confirm(
      { caller, ...call }: AttemptCall & { caller: Pick<UserCaller, 'ssoProviderId'> },
      user: GuardedUser,
      password: string,
    ): Promise<void> {
      const { id: actorId, email } = user
      const outcome = await attempt(call, { user, email, password, known: caller.ssoProviderId === null })
      if (outcome === 'right') return
      const refused = (reason: string) => ({ refusal: { actorId, actorEmail: email, details: { reason } } })
      if (outcome === 'wrong') throw new Problem('wrong_password', undefined, refused('wrong_password'))
      const retryAfter = Math.max(1, Math.ceil(secondsBetween(call.now, outcome.until)))
      const message = 'Too many attempts. Please try again later.'
      throw new Problem('rate_limited', message, { retryAfter, ...refused(outcome.reason) })
    },

    /**
     * A person who sets a new password through a link in the mailbox is the holder. Failures by strangers are
     * deleted, and the network of the reset is remembered, so that strangers who go on do not prevent the first
     * sign-in with the new password.
     */
    async resetByProof(db: Db, user: Pick<User, 'id'>, ip: string, now: Instant): Promise<void> {
      await deleteMarks(db, user.id)
      const key = userGuardKey(user.id)
      await lockMarks(db, key, now)
      const marks = [{ kind: 'proved' as const, place: networkOfAddress(ip), at: now }]
      await saveMarks(db, key, { marks, guardedUntil: null, expiresAt: addSeconds(now, ttlSeconds) })
    },
  }
}
