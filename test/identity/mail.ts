import { createCipher } from '../../src/core/cipher.ts'
import type { Mailer, MailMessage } from '../../src/messages/ports.ts'
import { mailContext } from '../../src/messages/rules.ts'
import { type TestService, testSecrets } from '../harness.ts'

/** A mailer that sends nothing, like a mail server that is down. */
export const unsent = (real: boolean): Mailer => ({
  real,
  send: () => Promise.reject(Object.assign(new Error('later'), { responseCode: 450 })),
})

/** The queued mails, oldest first. */
export async function lettersOf({ storage }: TestService): Promise<MailMessage[]> {
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  const rows = await storage.read.selectFrom('mails').selectAll().orderBy('id').execute()
  return rows.map((row) => JSON.parse(cipher.decrypt(row.content, mailContext(row.id))) as MailMessage)
}
