import { clonedMachineAlertRule } from '../../alerts/contract.ts'
import type { MacKey } from '../../audit/checkpoints/signer.ts'
import { randomBytes } from '../../core/random.ts'
import { truncateStorable } from '../../core/text.ts'
import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'

/** Seconds for which a challenge can be answered. */
const challengeSeconds = 120

const textOf = (issued: string, nonce: string): string => `svc agent challenge\n${issued}\n${nonce}`

/**
 * A challenge is not stored: its MAC shows that the service issued it, and when. Asking for one writes nothing and names no
 * device; the proof that answers it names the one that it is for.
 */
export function issueChallenge({ mac }: MacKey, now: Instant): { challenge: string; expiresAt: Instant } {
  const issued = Date.parse(now).toString(36)
  const nonce = randomBytes(16).toString('base64url')
  const challenge = `${issued}.${nonce}.${mac(textOf(issued, nonce))}`
  return { challenge, expiresAt: addSeconds(now, challengeSeconds) }
}

/** When a challenge was issued; undefined for one that is expired or not of this service. */
export function issuedAt({ verifyMac }: MacKey, challenge: string, now: Instant): Instant | undefined {
  const [issued = '', nonce = '', mac = '', ...more] = challenge.split('.')
  if (more.length > 0 || !verifyMac(textOf(issued, nonce), mac)) return undefined
  const at = new Date(Number.parseInt(issued, 36)).toISOString()
  // The process that issued it may have a clock that is ahead.
  const isCurrent = addSeconds(at, challengeSeconds) > now && at <= addSeconds(now, clockSkew)
  return isCurrent ? at : undefined
}

/** Machines get a second new token within this time only when a copy of them has taken the first. */
export const cloneDetectionSeconds = 3600

export type LastRecovery = {
  proved_at: Instant | null
  token_issued_at: Instant | null
  last_seen_at: Instant | null
}

/**
 * Whether tokens that were recovered less than an hour ago were used since: then another machine has them, which has the same
 * key. A machine that never got the reply asks again, and has not used them. A restore of the database moves `proved_at` and issues
 * no token. Otherwise the tokens are later than the challenge, except by the clock of a process that is ahead and issued it.
 */
export function isClonedMachine(
  { proved_at: proved, token_issued_at: issued, last_seen_at: seen }: LastRecovery,
  now: Instant,
): boolean {
  if (proved === null || issued === null || seen === null) return false
  if (addSeconds(issued, clockSkew) <= proved) return false
  return addSeconds(proved, cloneDetectionSeconds) > now && seen >= issued
}

export const clonedMachineAlert = ({
  id,
  org_id,
  hostname,
}: {
  id: string
  org_id: string
  hostname: string
}) => ({
  orgId: org_id,
  deviceId: id,
  ruleId: clonedMachineAlertRule,
  severity: 'high' as const,
  context: null,
  title: truncateStorable(`${hostname} seems to run twice: two machines use its key`, 500),
  message:
    'Each ends the token of the other. On the copy, remove identity.json of the agent and start it with an enrollment key. ' +
    'If there is no copy, somebody has taken the key: enroll the machine again.',
})
