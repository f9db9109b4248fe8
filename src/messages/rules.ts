import { createHmac } from 'node:crypto'
import { addSeconds, type Instant } from '../core/time.ts'

/** What a mail is sealed for: it opens in no other row. */
export const mailContext = (id: string): string => `mails.content.${id}`

/** How long a mail belongs to whoever claimed it; longer than any attempt takes. */
export const leaseSeconds = 120

/** When to try again after so many attempts: a minute, then twice as long each time, at most an hour. */
export const nextAttempt = (now: Instant, attempts: number): Instant =>
  addSeconds(now, Math.min(60 * 2 ** (attempts - 1), 3600))

export const phoneCode = { seconds: 600, tries: 5 } as const

/** Six digits are soon tried out, so without the pepper the stored form tells nothing. */
export const phoneCodeHash = (pepper: string, phoneNumber: string, code: string): string =>
  createHmac('sha256', pepper).update(`phone code\n${phoneNumber}\n${code}`).digest('hex')

/** Mails claimed, and sent side by side, at a time. */
export const batch = 10
