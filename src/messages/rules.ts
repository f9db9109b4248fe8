import { createHmac } from 'node:crypto'
import { addSeconds, type Instant } from '../core/time.ts'

/** The place a mail is encrypted for: it does not open in another row. */
export const mailContext = (id: string) => `mails.content.${id}` as const

/** Duration of a claim on a mail; longer than any attempt takes. */
export const leaseSeconds = 120

/** Time of the next attempt: after a minute, then twice as long each time, at most an hour. */
export const nextAttempt = (now: Instant, attempts: number): Instant =>
  addSeconds(now, Math.min(60 * 2 ** (attempts - 1), 3600))

export const phoneCode = { seconds: 600, tries: 5 } as const

/** Six digits are quickly brute-forced, so the hash is keyed with the pepper. */
export const phoneCodeHash = (pepper: string, phoneNumber: string, code: string): string =>
  createHmac('sha256', pepper).update(`phone code\n${phoneNumber}\n${code}`).digest('hex')

/** Mails claimed at a time, and sent in parallel. */
export const batch = 10
