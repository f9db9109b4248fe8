import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { AgentCaller } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { matchToken, type StandingChange } from './rules.ts'
import { lockTokens } from './store.ts'

/** Locks and reads the tokens again: a concurrent request may have changed them since authentication. */
export async function lockTokenStanding(
  db: Db,
  { deviceId, tokenHash, standing }: AgentCaller,
  now: Instant,
): Promise<{ tokens: NonNullable<Awaited<ReturnType<typeof lockTokens>>>; standingChange: StandingChange }> {
  const tokens = await lockTokens(db, deviceId)
  if (!tokens) throw new Problem('invalid_agent_credentials')
  return { tokens, standingChange: { before: standing, now: matchToken(tokens, tokenHash, now)?.standing } }
}
