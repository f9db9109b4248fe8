import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import type { Limits } from '../../core/limits.ts'
import { networkOfAddress } from '../../core/network.ts'
import { addSeconds, type Instant, secondsBetween } from '../../core/time.ts'
import type { UserCaller } from '../../handler.ts'
import { signInGuarded, signInStopped } from '../../messages/letters.ts'
import { forgotLink } from '../../messages/links.ts'
import { queueLetter } from '../../messages/queue.ts'
import type { Db, Storage } from '../../storage/open.ts'
import type { User } from '../store.ts'
import { checkPassword } from './check.ts'
import {
  afterRight,
  afterWrong,
  type Figures,
  guardedUntil,
  markSeconds,
  passageOf,
  type Shut,
  type Stopped,
  worthKeeping,
} from './rules.ts'
import { doorOfStranger, doorOfUser, forgetMarks, lockMarks, saveMarks } from './store.ts'

export type Door = ReturnType<typeof doorOf>

export type DoorKeys = {
  cipher: Cipher
  publicUrl: () => string
  limits: Limits
  /** Told of every attempt that was not let near the password. */
  onStopped(reason: Stopped['reason']): void
}

type Holder = Pick<User, 'id' | 'email' | 'name' | 'passwordHash' | 'isSystem'>

/** A request with a password in it. */
type Knock = { storage: Storage; ip: string; isLocal: boolean; now: Instant }

/** The one place that passwords are held against accounts. */
export function doorOf({ cipher, publicUrl, limits, onStopped }: DoorKeys) {
  const figures: Figures = {
    network: limits.WRONG_PASSWORDS_NETWORK,
    account: limits.WRONG_PASSWORDS_ACCOUNT,
  }
  const lastsSeconds = markSeconds(figures)

  /**
   * Whether a password is right, unless whoever asks was stopped: the answer is then `stopped` for the right one too.
   * It is the same work in each case, and without an account. What is decided is decided after the password was looked
   * at, one attempt at a time: of a thousand at once no more than the figures allow are told anything.
   */
  async function knock(
    { storage, ip, isLocal, now }: Knock,
    { user, email, password, known }: { user?: Holder; email: string; password: string; known: boolean },
  ): Promise<'right' | 'wrong' | Stopped> {
    const right = await checkPassword(user?.passwordHash ?? null, password)
    const door = user ? doorOfUser(user.id) : doorOfStranger(email)
    const breaksGlass = isLocal && user?.isSystem === true
    const network = networkOfAddress(ip)
    const outcome = await storage.write(
      async (tx) => {
        const before = worthKeeping(await lockMarks(tx, door, now), figures, now)
        const passage = passageOf(before, { network, known, breaksGlass }, figures, now)
        const isOpen = 'place' in passage
        const { marks, tell } =
          !isOpen || right
            ? { marks: isOpen ? afterRight(before, passage.place) : before, tell: undefined }
            : afterWrong(before, passage.place, figures, now)
        const guarded = guardedUntil(marks, figures.account, now) ?? null
        await saveMarks(tx, door, { marks, guardedUntil: guarded, expiresAt: addSeconds(now, lastsSeconds) })
        if (user && tell) await tellHolder(tx, user, tell, network, now)
        return isOpen ? (right ? 'right' : 'wrong') : passage
      },
      { unsynced: true },
    )
    if (typeof outcome === 'object') onStopped(outcome.reason)
    return outcome
  }

  async function tellHolder(tx: Db, user: Holder, shut: Shut, network: string, now: Instant): Promise<void> {
    const to = { to: user.email, name: user.name, url: forgotLink(publicUrl()) }
    const minutes = (limit: keyof Figures) => Math.ceil((figures[limit]?.seconds ?? 0) / 60)
    const letter =
      shut === 'network'
        ? signInStopped({ ...to, network, minutes: minutes('network') })
        : signInGuarded({ ...to, minutes: minutes('account') })
    await queueLetter(tx, cipher, letter, now, addSeconds(now, 3600))
  }

  return {
    knock,

    /**
     * Of somebody who is signed in. Their session is a client that the account knows, unless a provider vouched for it.
     * @throws wrong_password, rate_limited
     */
    async confirm(
      { caller, ...call }: Knock & { caller: Pick<UserCaller, 'ssoProviderId'> },
      user: Holder,
      password: string,
    ): Promise<void> {
      const { id: actorId, email } = user
      const outcome = await knock(call, { user, email, password, known: caller.ssoProviderId === null })
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
    async proved(db: Db, user: Pick<User, 'id'>, ip: string, now: Instant): Promise<void> {
      await forgetMarks(db, user.id)
      const door = doorOfUser(user.id)
      await lockMarks(db, door, now)
      const marks = [{ kind: 'proved' as const, place: networkOfAddress(ip), at: now }]
      await saveMarks(db, door, { marks, guardedUntil: null, expiresAt: addSeconds(now, lastsSeconds) })
    },
  }
}
