import { randomInt } from 'node:crypto'
import { Problem } from '../../src/core/errors.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, type Clock } from '../../src/core/time.ts'
import type { Mailer, PhoneCodes } from '../../src/messages/ports.ts'
import { phoneCode, phoneCodeHash } from '../../src/messages/rules.ts'
import { savePhoneCode, tryPhoneCode } from '../../src/messages/store.ts'
import type { Storage } from '../../src/storage/open.ts'
import { writeOutboxMessage } from './outbox.ts'

/** Mail into the outbox of the data directory, for `svc dev outbox`. */
export const outboxMailer = (dataDir: string, clock: Clock): Mailer => ({
  real: false,
  send: (letter, id = newId()) => {
    const { to, kind, subject, text, html, links } = letter
    return writeOutboxMessage(dataDir, { id, at: clock(), to, kind, subject, text, html, links })
  },
})

/** Replaces a verification service; its SMS go into the outbox. */
export const outboxPhoneCodes = (
  dataDir: string,
  storage: Storage,
  pepper: string,
  clock: Clock,
): PhoneCodes => ({
  async send(phoneNumber) {
    const code = String(randomInt(1_000_000)).padStart(6, '0')
    const now = clock()
    const codeHash = phoneCodeHash(pepper, phoneNumber, code)
    const expiresAt = addSeconds(now, phoneCode.seconds)
    await storage.write((tx) => savePhoneCode(tx, { phoneNumber, codeHash, expiresAt }))
    const message = {
      kind: 'sms-code',
      subject: 'Verification code',
      text: `Your verification code is ${code}. It is good for ${phoneCode.seconds / 60} minutes.`,
    }
    await writeOutboxMessage(dataDir, {
      id: newId(),
      at: now,
      to: phoneNumber,
      ...message,
      html: '',
      links: [],
    })
  },

  check(phoneNumber, code) {
    const codeHash = phoneCodeHash(pepper, phoneNumber, code)
    const attempt = { phoneNumber, codeHash, tries: phoneCode.tries, now: clock() }
    return storage.write((tx) => tryPhoneCode(tx, attempt))
  },
})

/** In production codes are not written to disk: without a verification service there are none. */
export const noPhoneCodes: PhoneCodes = {
  send: async () => {
    throw new Problem('sms_not_configured')
  },
  check: async () => {
    throw new Problem('sms_not_configured')
  },
}
