import { reasonOf } from '../core/client.ts'
import { escapeToOneLine } from '../core/terminal.ts'

export type Explanation = { reason: string; hint?: string }

type Failure = NodeJS.ErrnoException & { host?: string; cert?: { subjectaltname?: string } }

const trusting =
  'SVC_CA_FILE=FILE trusts it: FILE has the certificate of its authority (PEM), which whoever runs the service can give you'
const renewing = 'whoever runs the service has to renew it, unless the clock of this machine is wrong'

const certificateHints: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: trusting.replace('of its authority ', ''),
  SELF_SIGNED_CERT_IN_CHAIN: trusting,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: trusting,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: trusting,
  UNABLE_TO_GET_ISSUER_CERT: trusting,
  CERT_HAS_EXPIRED: renewing,
  CERT_NOT_YET_VALID: renewing,
}

const withoutTls = ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']
/** How a server with TLS ends a request without it. */
const brokenOff = /^(ECONNRESET|EPIPE|HPE_\w+)$/

/** Why a request got no reply, and what to do about it where that is a matter of TLS. */
export async function explainFailure(error: unknown, url: URL, isDirect: boolean): Promise<Explanation> {
  const { code = '', host = url.hostname, cert } = error as Failure
  const reason = reasonOf(error)
  if (url.protocol === 'https:' && withoutTls.includes(code))
    return { reason: 'it does not speak TLS', hint: `without TLS its address is http://${url.host}` }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    const names = (cert?.subjectaltname ?? '').replace(/DNS:|IP Address:/g, '').slice(0, 200)
    const hint = 'the address has to have a name of the certificate'
    return { reason: `its certificate is for ${escapeToOneLine(names) || 'no name'}, not for ${host}`, hint }
  }
  if (url.protocol === 'http:' && isDirect && brokenOff.test(code) && (await speaksTls(url)))
    return needsTls(url)
  const hint = certificateHints[code]
  return { reason, ...(hint && { hint }) }
}

export const needsTls = ({ host }: URL): Explanation => ({
  reason: 'it speaks TLS',
  hint: `with TLS its address is https://${host}`,
})

/** Whether a server begins a connection with TLS, whatever its certificate is. */
export function speaksTls({ hostname, port }: URL): Promise<boolean> {
  const { connect } = process.getBuiltinModule('node:tls')
  const host = hostname.replace(/^\[|\]$/g, '')
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const socket = connect({ host, port: Number(port || 80), rejectUnauthorized: false, timeout: 2000 })
  socket.on('secureConnect', () => resolve(true))
  for (const end of ['error', 'timeout', 'close']) socket.on(end, () => resolve(false))
  return promise.finally(() => socket.destroy())
}
