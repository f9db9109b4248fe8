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
  liveMarks,
  markTtlSeconds,
} from './rules.ts'
import { deleteMarks, lockMarks, saveMarks, strangerGuardKey, userGuardKey } from './store.ts'
import { verifyPassword } from './verify.ts'

export type PasswordGuard = ReturnType<typeof createPasswordGuard>

export type PasswordGuardDependencies = {
  cipher: Cipher
  publicUrl: () => string
  limits: Limits
  /** Told of every attempt that was not let near the password. */
  onLockedOut(reason: Lockout['reason']): void
}

type GuardedUser = Pick<User, 'id' | 'email' | 'name' | 'passwordHash' | 'isSystem'>

/** A request with a password in it. */
type AttemptCall = { storage: Storage; ip: string; isLocal: boolean; now: Instant }

/** The one place that passwords are held against accounts. */
export function createPasswordGuard({
  cipher,
  publicUrl,
  limits,
  onLockedOut: onStopped,
}: PasswordGuardDependencies) {
  const figures: GuardLimits = {
    network: limits.WRONG_PASSWORDS_NETWORK,
    account: limits.WRONG_PASSWORDS_ACCOUNT,
  }
  const lastsSeconds = markTtlSeconds(figures)

  /**
   * Whether a password is right, unless whoever asks was stopped: the answer is then `stopped` for the right one too.
   * It is the same work in each case, and without an account. What is decided is decided after the password was looked
   * at, one attempt at a time: of a thousand at once no more than the figures allow are told anything.
   */
  async function attempt(
    { storage, ip, isLocal, now }: AttemptCall,
    { user, email, password, known }: { user?: GuardedUser; email: string; password: string; known: boolean },
  ): Promise<'right' | 'wrong' | Lockout> {
    const right = await verifyPassword(user?.passwordHash ?? null, password)
    const key = user ? userGuardKey(user.id) : strangerGuardKey(email)
    const breaksGlass = isLocal && user?.isSystem === true
    const network = networkOfAddress(ip)
    const outcome = await storage.write(
      async (tx) => {
        const before = liveMarks(await lockMarks(tx, key, now), figures, now)
        const passage = decideAttempt(before, { network, known, breaksGlass }, figures, now)
        const isOpen = 'place' in passage
        const { marks, tell } =
          !isOpen || right
            ? { marks: isOpen ? clearFailures(before, passage.place) : before, tell: undefined }
            : addFailure(before, passage.place, figures, now)
        const guarded = guardedUntil(marks, figures.account, now) ?? null
        await saveMarks(tx, key, { marks, guardedUntil: guarded, expiresAt: addSeconds(now, lastsSeconds) })
        if (user && tell) await notifyHolder(tx, user, tell, network, now)
        return isOpen ? (right ? 'right' : 'wrong') : passage
      },
      { unsynced: true },
    )
    if (typeof outcome === 'object') onStopped(outcome.reason)
    return outcome
  }

  async function notifyHolder(
    tx: Db,
    user: GuardedUser,
    shut: LockoutNotice,
    network: string,
    now: Instant,
  ): Promise<void> {
    const to = { to: user.email, name: user.name, url: forgotLink(publicUrl()) }
    const minutes = (limit: keyof GuardLimits) => Math.ceil((figures[limit]?.seconds ?? 0) / 60)
    const letter =
      shut === 'network'
        ? signInStopped({ ...to, network, minutes: minutes('network') })
        : signInGuarded({ ...to, minutes: minutes('account') })
    await queueMail(tx, cipher, letter, now, addSeconds(now, 3600))
  }

  return {
    attempt,

    /**
     * Of somebody who is signed in. Their session is a client that the account knows, unless a provider vouched for it.
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
     * Who sets a new password by a link of the mailbox is the holder: what strangers did is forgotten, and where it was
     * done from is known, so that strangers who go on do not keep them from the first sign-in with it.
     */
    async resetByProof(db: Db, user: Pick<User, 'id'>, ip: string, now: Instant): Promise<void> {
      await deleteMarks(db, user.id)
      const key = userGuardKey(user.id)
      await lockMarks(db, key, now)
      const marks = [{ kind: 'proved' as const, place: networkOfAddress(ip), at: now }]
      await saveMarks(db, key, { marks, guardedUntil: null, expiresAt: addSeconds(now, lastsSeconds) })
    },
  }
}
