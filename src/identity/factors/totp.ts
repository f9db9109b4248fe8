import { generateSecret, generateURI, verifySync } from 'otplib'
import { type Instant, secondsBetween } from '../../core/time.ts'

const period = 30
const beginning = '1970-01-01T00:00:00.000Z'

/** 20 random bytes in Base32. */
export const newTotpSecret = (): string => generateSecret({ length: 20 })

/** RFC 6238 key URI for authenticator apps. */
export const totpUrl = (secret: string, email: string): string =>
  generateURI({ issuer: 'svc', label: email, secret })

/**
 * The 30 s step a code belongs to, one step off at most, or undefined when it is wrong or belongs to a
 * step that was used before.
 */
export function totpStep(secret: string, code: string, now: Instant, lastStep: number): number | undefined {
  if (!/^\d{6}$/.test(code)) return undefined
  const epoch = Math.floor(secondsBetween(beginning, now))
  const current = Math.floor(epoch / period)
  if (lastStep > current) return undefined
  const found = verifySync({ secret, token: code, epoch, epochTolerance: period, afterTimeStep: lastStep })
  return found.valid && 'timeStep' in found ? found.timeStep : undefined
}
