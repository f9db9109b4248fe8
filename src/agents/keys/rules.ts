import { randomBytes } from '../../core/random.ts'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'

/** What only the service itself can compute: an HMAC under a key derived from the one that signs the audit log. */
export type Sealer = { seal(text: string): string; isSealed(text: string, seal: string): boolean }

/** Seconds for which a challenge can be answered. */
const challengeSeconds = 120

const textOf = (issued: string, nonce: string): string => `svc agent challenge\n${issued}\n${nonce}`

/**
 * A challenge is not stored: its seal shows that the service issued it, and when. Asking for one writes nothing and names no
 * device; the proof that answers it names the one that it is for.
 */
export function issueChallenge({ seal }: Sealer, now: Instant): { challenge: string; expiresAt: Instant } {
  const issued = Date.parse(now).toString(36)
  const nonce = randomBytes(16).toString('base64url')
  const challenge = `${issued}.${nonce}.${seal(textOf(issued, nonce))}`
  return { challenge, expiresAt: addSeconds(now, challengeSeconds) }
}

/** When a challenge was issued; undefined for one that is expired or not of this service. */
export function issuedAt({ isSealed }: Sealer, challenge: string, now: Instant): Instant | undefined {
  const [issued = '', nonce = '', seal = '', ...more] = challenge.split('.')
  if (more.length > 0 || !isSealed(textOf(issued, nonce), seal)) return undefined
  const at = new Date(Number.parseInt(issued, 36)).toISOString()
  // The process that issued it may have a clock that is ahead.
  const isCurrent = addSeconds(at, challengeSeconds) > now && at <= addSeconds(now, clockSkew)
  return isCurrent ? at : undefined
}
