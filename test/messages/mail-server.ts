import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'
import { onTestFinished } from 'vitest'
import { certificate, privateKey } from './certificate.ts'

export type Received = { from: string; to: string[]; source: string; secure: boolean; user: unknown }

export type MailServer = {
  port: number
  received: Received[]
  /** The user names that tried to sign in. */
  logins: unknown[]
  close(): Promise<void>
}

type Options = {
  port?: number
  /** TLS from the first byte. */
  secure?: boolean
  /** Offers no STARTTLS. */
  plain?: boolean
  login?: { user: string; pass: string }
  /** Never sends the greeting. */
  silent?: boolean
}

/** A real SMTP server on this machine; it refuses recipients named nobody. */
export async function startMailServer({
  port = 0,
  secure,
  plain,
  login,
  silent,
}: Options = {}): Promise<MailServer> {
  const received: Received[] = []
  const logins: unknown[] = []
  const disabled = [...(plain ? ['STARTTLS'] : []), ...(login ? [] : ['AUTH'])]
  const server = new SMTPServer({
    secure: secure ?? false,
    key: privateKey,
    cert: certificate,
    disabledCommands: disabled,
    authOptional: login === undefined,
    // The tests check for passwords in plain text, the server does not refuse them.
    allowInsecureAuth: true,
    disableReverseLookup: true,
    closeTimeout: 100,
    logger: false,
    onConnect: (_, done) => void (silent || done()),
    onAuth: ({ username, password }, _, done) => {
      logins.push(username)
      username === login?.user && password === login?.pass
        ? done(null, { user: username })
        : done(Object.assign(new Error(`Wrong password ${password}`), { responseCode: 535 }))
    },
    onRcptTo: ({ address }, _, done) =>
      address.startsWith('nobody@')
        ? done(Object.assign(new Error(`No such user ${address}`), { responseCode: 550 }))
        : done(),
    onData: (stream, session, done) => {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope
        received.push({
          from: mailFrom ? mailFrom.address : '',
          to: rcptTo.map(({ address }) => address),
          source: Buffer.concat(chunks).toString('utf8'),
          secure: session.secure,
          user: session.user,
        })
        done()
      })
    },
  })
  server.on('error', () => {})
  await new Promise<void>((resolve) => void server.listen(port, '127.0.0.1', resolve))
  const close = () => new Promise<void>((resolve) => server.close(resolve))
  onTestFinished(close)
  return { port: (server.server.address() as AddressInfo).port, received, logins, close }
}

/** A header, unfolded. */
export const headerOf = ({ source }: Received, name: string): string | undefined =>
  new RegExp(`^${name}: (.*)$`, 'im').exec(source.split('\r\n\r\n')[0]!.replace(/\r\n[ \t]+/g, ' '))?.[1]
