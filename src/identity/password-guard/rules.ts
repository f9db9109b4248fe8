import type { Limit } from '../../core/limits.ts'
import { addSeconds, type Instant, secondsBetween } from '../../core/time.ts'

/*
 * How wrong passwords lock out the guesser and no one else. Failures are counted per network, so that an
 * attacker locks out only their own; and over all unknown clients together, so that using many networks helps
 * little: beyond that limit a password alone is not enough for an unknown client, while a client that the
 * account knows signs in as ever.
 */

/**
 * An event in the sign-in history of an account: a wrong password, the use of a mailed link, a notification
 * mail about it.
 */
export type AttemptMark = { kind: 'wrong' | 'proved' | 'told'; place: string; at: Instant }

export type GuardLimits = {
  /** Wrong passwords that lock out one place, for as long as they are counted. */
  network: Limit | undefined
  /** Wrong passwords of all unknown clients together, after which they need a further proof. */
  account: Limit | undefined
}

/**
 * Places besides networks. Failures of clients that the account knows count under `knownClients`, wherever they
 * are.
 */
export const knownClients = 'known clients'
const thisMachine = 'this machine'

export type PasswordAttempt = {
  network: string
  /** The client is known to the account. */
  known: boolean
  /** A system administrator on the machine that runs the service: an attacker elsewhere cannot lock this access. */
  breaksGlass: boolean
}

export type Lockout = { reason: 'network_stopped' | 'proof_required'; until: Instant }
export type AttemptDecision = { place: string } | Lockout

/** A person who has just used a mailed link may mistype the password they chose with it. */
const provedSeconds = 3600

/** The place that an attempt counts for: the first of its places that is not locked out. */
export function decideAttempt(
  marks: readonly AttemptMark[],
  { network, known, breaksGlass }: PasswordAttempt,
  figures: GuardLimits,
  now: Instant,
): AttemptDecision {
  if (breaksGlass) return { place: thisMachine }
  const until = (place: string) => lockedOutUntil(failureTimes(marks, place), figures.network, now)
  const hasProved = marks.some(
    ({ kind, place, at }) => kind === 'proved' && place === network && isWithin(at, provedSeconds, now),
  )
  if ((known || hasProved) && until(knownClients) === undefined) return { place: knownClients }
  const stopped = until(network)
  if (stopped !== undefined) return { reason: 'network_stopped', until: stopped }
  const guarded = guardedUntil(marks, figures.account, now)
  return guarded === undefined ? { place: network } : { reason: 'proof_required', until: guarded }
}

/** Nothing is counted while a place is locked out: its last wrong password is the one that locked it. */
function lockedOutUntil(
  times: readonly Instant[],
  limit: Limit | undefined,
  now: Instant,
): Instant | undefined {
  const [last, first] = limit ? [times.at(-1), times.at(-limit.count)] : []
  if (!limit || last === undefined || first === undefined) return undefined
  if (secondsBetween(first, last) >= limit.seconds) return undefined
  const until = addSeconds(last, limit.seconds)
  return until > now ? until : undefined
}

/** Until when unknown clients need more than a password. */
export function guardedUntil(
  marks: readonly AttemptMark[],
  limit: Limit | undefined,
  now: Instant,
): Instant | undefined {
  const unknown = marks.filter(
    ({ kind, place }) => kind === 'wrong' && place !== knownClients && place !== thisMachine,
  )
  const first = limit && unknown.at(-limit.count)
  if (!first || !isWithin(first.at, limit.seconds, now)) return undefined
  return addSeconds(first.at, limit.seconds)
}

/** A right password shows that the wrong ones before it, at the same place, were the holder's own. */
export const clearFailures = (marks: readonly AttemptMark[], place: string): AttemptMark[] =>
  marks.filter((mark) => mark.kind !== 'wrong' || mark.place !== place)

/** Kind of lockout that the holder is notified of. */
export type LockoutNotice = 'network' | 'account'

/** Interval between notifications of the same kind, so that a guesser does not fill the holder's mailbox. */
const noticeIntervalSeconds = 3600

export function addFailure(
  marks: readonly AttemptMark[],
  place: string,
  figures: GuardLimits,
  now: Instant,
): { marks: AttemptMark[]; notice: LockoutNotice | undefined } {
  const next: AttemptMark[] = [...marks, { kind: 'wrong', place, at: now }]
  const guards = (all: readonly AttemptMark[]) => guardedUntil(all, figures.account, now) !== undefined
  const lockout =
    guards(next) && !guards(marks)
      ? 'account'
      : lockedOutUntil(failureTimes(next, place), figures.network, now) !== undefined
        ? 'network'
        : undefined
  const wasNotified = marks.some(
    (mark) => mark.kind === 'told' && mark.place === lockout && isWithin(mark.at, noticeIntervalSeconds, now),
  )
  if (lockout === undefined || wasNotified || place === thisMachine) return { marks: next, notice: undefined }
  return { marks: [...next, { kind: 'told', place: lockout, at: now }], notice: lockout }
}

/** How long a mark can matter. */
export const markTtlSeconds = ({ network, account }: GuardLimits): number =>
  Math.max(2 * (network?.seconds ?? 0), account?.seconds ?? 0, provedSeconds, noticeIntervalSeconds)

/** The marks that still count, at most as many as can matter. */
export function unexpiredMarks(
  marks: readonly AttemptMark[],
  figures: GuardLimits,
  now: Instant,
): AttemptMark[] {
  const seconds = markTtlSeconds(figures)
  return marks
    .filter(({ at }) => isWithin(at, seconds, now))
    .slice(-(figures.account?.count ?? 0) - (figures.network?.count ?? 0) - 100)
}

const failureTimes = (marks: readonly AttemptMark[], place: string): Instant[] =>
  marks.filter((mark) => mark.kind === 'wrong' && mark.place === place).map(({ at }) => at)

const isWithin = (at: Instant, seconds: number, now: Instant): boolean => addSeconds(at, seconds) > now
