import { hash, timingSafeEqual } from 'node:crypto'
import { type ErrorCode, Problem } from '../../core/errors.ts'
import { randomBytes } from '../../core/random.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { AgentRole, AgentRotationRow, TokenStanding } from '../../storage/schema/agent-tables.ts'

/** `svc_` and 64 hex characters; only its SHA-256 is stored. */
export const newAgentToken = (): string => `svc_${randomBytes(32).toString('hex')}`

export const agentTokenHash = (token: string): string => hash('sha256', token, 'hex')

/** Seconds until unconfirmed new tokens lapse, and for which the previous ones remain valid after a confirmation. */
const pendingSeconds = 3600
const previousSeconds = 300

/** The active tokens of a device, by their SHA-256. */
export type ActiveTokens = {
  token_hash: string
  watchdog_token_hash: string | null
  /** null: no rotation was ever confirmed. */
  token_issued_at: Instant | null
}
export type Rotation = Omit<AgentRotationRow, 'device_id'>
type TokenMatch = { role: AgentRole; standing: TokenStanding }

/** The owner of a token among the active ones. */
export function matchActive(
  current: Omit<ActiveTokens, 'token_issued_at'>,
  stated: string,
): TokenMatch | undefined {
  const role = ownerOf(stated, current.token_hash, current.watchdog_token_hash)
  return role && { role, standing: 'current' }
}

/** The owner of a token that is active, pending or lapsed, or was active until recently. */
export function matchToken(
  tokens: Omit<ActiveTokens, 'token_issued_at'> & Rotation,
  stated: string,
  now: Instant,
): TokenMatch | undefined {
  return matchActive(tokens, stated) ?? matchRotation(tokens, stated, now)
}

function matchRotation(rotation: Rotation, stated: string, now: Instant): TokenMatch | undefined {
  const pending = ownerOf(stated, rotation.pending_token_hash, rotation.pending_watchdog_hash)
  if (pending)
    return { role: pending, standing: isFuture(rotation.pending_until, now) ? 'pending' : 'lapsed' }
  const previous = ownerOf(stated, rotation.previous_token_hash, rotation.previous_watchdog_hash)
  if (previous && isFuture(rotation.previous_until, now)) return { role: previous, standing: 'previous' }
  return undefined
}

const isFuture = (until: Instant | null, now: Instant): boolean => until !== null && until > now

function ownerOf(stated: string, agent: string | null, watchdog: string | null): AgentRole | undefined {
  const isThat = (kept: string | null): boolean =>
    kept?.length === stated.length && timingSafeEqual(Buffer.from(kept), Buffer.from(stated))
  if (isThat(agent)) return 'agent'
  return isThat(watchdog) ? 'watchdog' : undefined
}

/** Stages new tokens beside the active ones; an earlier staged pair becomes invalid. */
export function stageRotation(
  { previous_token_hash, previous_watchdog_hash, previous_until }: Rotation,
  tokens: { agent: string; watchdog: string },
  now: Instant,
): Rotation & { pending_until: Instant } {
  return {
    previous_token_hash,
    previous_watchdog_hash,
    previous_until,
    pending_token_hash: agentTokenHash(tokens.agent),
    pending_watchdog_hash: agentTokenHash(tokens.watchdog),
    pending_until: addSeconds(now, pendingSeconds),
  }
}

/** The new tokens become active; those they replace remain valid for some minutes. */
export function confirmRotation(
  tokens: ActiveTokens & Rotation,
  now: Instant,
): { current: ActiveTokens; rotation: Rotation } {
  return {
    current: {
      token_hash: tokens.pending_token_hash!,
      watchdog_token_hash: tokens.pending_watchdog_hash,
      token_issued_at: now,
    },
    rotation: {
      pending_token_hash: null,
      pending_watchdog_hash: null,
      pending_until: null,
      previous_token_hash: tokens.token_hash,
      previous_watchdog_hash: tokens.watchdog_token_hash,
      previous_until: addSeconds(now, previousSeconds),
    },
  }
}

/** Standing of a token when its request came in, and now, under the lock. */
export type StandingChange = { before: TokenStanding; now: TokenStanding | undefined }

/** The holder of a token that is not active yet, or no longer, is told what to do instead. @throws */
export function checkIsCurrent({ now }: StandingChange): void {
  if (now === 'current') return
  const codes = {
    previous: 'rotation_stale_current',
    pending: 'pending_rotation_unconfirmed',
    lapsed: 'pending_rotation_expired',
  } as const satisfies Record<string, ErrorCode>
  throw new Problem(now === undefined ? 'rotation_unresolvable' : codes[now])
}

/**
 * `done` when the presented token is active and came from a confirmed rotation: the caller has lost the first reply.
 * @throws pending_token_required, pending_rotation_expired, rotation_stale_current, rotation_conflict,
 * rotation_unresolvable
 */
export function checkMayConfirm(
  standingChange: StandingChange,
  tokens: ActiveTokens & Rotation,
  now: Instant,
): 'confirm' | 'done' {
  switch (standingChange.now) {
    case 'pending':
      return 'confirm'
    case 'lapsed':
      throw new Problem('pending_rotation_expired')
    case 'previous':
      throw new Problem('rotation_stale_current')
    case 'current': {
      const isWaiting = isFuture(tokens.pending_until, now)
      if (tokens.token_issued_at === null || isWaiting) throw new Problem('pending_token_required')
      return 'done'
    }
    default:
      throw new Problem(standingChange.before === 'pending' ? 'rotation_conflict' : 'rotation_unresolvable')
  }
}
