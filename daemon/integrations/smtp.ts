import type { Mailer } from '../../src/messages/ports.ts'
import type { SmtpSettings } from './settings.ts'

/** Shorter than the claim on a mail, so that no other process sends it meanwhile. */
const longest = 60_000

/** Sends by SMTP, each mail in a separate connection. */
export function smtpMailer(settings: SmtpSettings): Mailer {
  let transport: ReturnType<typeof open> | undefined
  const domain = /@([^>]+)>?$/.exec(settings.from)![1]
  return {
    real: true,
    async send({ to, subject, text, html }, id) {
      transport ??= open(settings)
      await (await transport).sendMail({
        // As an object: in text a comma would create two recipients.
        to: { name: '', address: to },
        subject,
        text,
        html,
        headers: { 'Auto-Submitted': 'auto-generated' },
        ...(id !== undefined && { messageId: `<${id}@${domain}>` }),
        signal: AbortSignal.timeout(longest),
      })
    },
  }
}

/** Connects and signs in, and sends nothing. @throws with the reason of the server */
export async function verifySmtp(settings: SmtpSettings): Promise<void> {
  const transport = await open(settings)
  try {
    await transport.verify()
  } finally {
    transport.close()
  }
}

/** The library is loaded with the first mail: most processes never send one. */
async function open({ host, port, secure, startTls, auth, from, ca }: SmtpSettings) {
  const { createTransport } = await import('nodemailer')
  const { getCACertificates } = await import('node:tls')
  const options = {
    host,
    port,
    secure,
    requireTLS: startTls === 'required',
    ignoreTLS: startTls === 'never',
    ...(auth && { auth }),
    tls: {
      ...(ca !== undefined && { ca: [...getCACertificates('default'), ca] }),
      ...(startTls === 'when-offered' && !secure && { rejectUnauthorized: false }),
    },
    connectionTimeout: 10_000,
    greetingTimeout: 10_000,
    dnsTimeout: 10_000,
    socketTimeout: 30_000,
    disableFileAccess: true,
    disableUrlAccess: true,
  }
  return createTransport(options, { from })
}
