import { isIP } from 'node:net'
import type { Finding } from '../../src/core/finding.ts'
import { isLoopback, normalizeAddress } from '../../src/core/network.ts'
import { version } from '../../src/version.ts'
import type { Config } from '../config.ts'
import { verifySmtp } from '../integrations/smtp.ts'
import { clockFinding } from './database.ts'
import { type Probe, probe } from './endpoint.ts'
import { failed, passed, sentenceOf, warning } from './finding.ts'

/* The running service, as this machine and as its clients reach it, and what it needs outside. */

const isEveryAddress = (host: string): boolean => host === '0.0.0.0' || host === '::'

/** Where the service listens according to the settings. */
function ownUrl({ host, port }: Config): URL {
  const name = isEveryAddress(host) ? '127.0.0.1' : host
  return new URL(`http://${isIP(name) === 6 ? `[${name}]` : name}:${port}`)
}

type Health = { version?: string; clientAddress?: string }
type Ready = { status?: string; checks?: Record<string, string> }

function parse<T>({ body }: Probe): Partial<T> {
  try {
    return JSON.parse(body) as T
  } catch {
    return {}
  }
}

export async function checkService(config: Config): Promise<Finding[]> {
  const check = 'service'
  const url = ownUrl(config)
  let health: Probe
  try {
    health = await probe(new URL('/api/v1/health', url))
  } catch (error) {
    return [
      failed(check, {
        message: `No service answers: ${sentenceOf(error)}.`,
        reason: 'Nobody can sign in, and agents report nothing.',
        remedy: 'systemctl status svc, or svc serve; HOST and PORT say where it listens',
      }),
    ]
  }
  const running = parse<Health>(health).version
  if (running === undefined) {
    return [
      failed(check, {
        message: `${url.origin} is answered by another program.`,
        reason: 'The service cannot listen there.',
        remedy: 'end that program, or choose another PORT',
      }),
    ]
  }
  const findings: Finding[] = []
  if (running !== version) {
    findings.push(
      warning(check, {
        message: `It runs version ${running}, and this is svc ${version}.`,
        reason: 'An upgrade takes effect when the service starts again.',
        remedy: 'systemctl restart svc',
      }),
    )
  }
  const ready = parse<Ready>(await probe(new URL('/health/ready', url)))
  for (const [name, said] of Object.entries(ready.checks ?? {})) {
    if (said !== 'ok') findings.push(notReady(name, said))
  }
  return findings.length > 0 ? findings : [passed(check, `Version ${running}, ready`)]
}

const notReady = (name: string, said: string): Finding =>
  failed('service', {
    message: `Its readiness check reports ${name}: ${said}.`,
    reason: 'Requests that need this fail.',
    remedy: 'mend what the other findings say about it; the log of the service has the details',
  })

/** Time in which a certificate should have been renewed. */
const certificateMs = 14 * 86_400_000

export async function checkPublicUrl({ outside }: Config): Promise<Finding[]> {
  const check = 'public address'
  const { publicUrl } = outside
  if (publicUrl === undefined) return []
  let seen: Probe
  try {
    seen = await probe(new URL(`${publicUrl.replace(/\/$/, '')}/api/v1/health`))
  } catch (error) {
    return [
      failed(check, {
        message: `PUBLIC_URL does not work: ${sentenceOf(error)}.`,
        reason: 'Agents and people use this address.',
        remedy:
          'mend the proxy, its certificate or the name; or set PUBLIC_URL to the address that people use',
      }),
    ]
  }
  const health = parse<Health>(seen)
  if (health.version === undefined) {
    return [
      failed(check, {
        message: `${publicUrl}/api/v1/health answers ${seen.status}, and not as this service does.`,
        reason: 'Agents and people use this address.',
        remedy: 'let the proxy pass requests on to the service with their path',
      }),
    ]
  }
  const findings = [...certificate(publicUrl, seen), ...(await clientAddress(publicUrl, seen, health))]
  if (seen.skewMs !== undefined) findings.push(...clockFinding(seen.skewMs, 'the proxy'))
  return findings.length > 0 ? findings : [passed(check, `${publicUrl} answers${endOf(seen)}`)]
}

const endOf = ({ certificateEnds }: Probe): string =>
  certificateEnds ? `, certificate until ${certificateEnds.toISOString().slice(0, 10)}` : ''

function certificate(publicUrl: string, { certificateEnds }: Probe): Finding[] {
  if (certificateEnds === undefined || certificateEnds.getTime() - Date.now() > certificateMs) return []
  return [
    warning('public address', {
      message: `The certificate of ${publicUrl} ends on ${certificateEnds.toISOString().slice(0, 10)}.`,
      reason: 'From then on no agent and no person can connect.',
      remedy: 'renew it, and see why it was not renewed by itself',
    }),
  ]
}

/** An address of documentation (RFC 5737), which no client has. */
const madeUp = '192.0.2.1'

/** Whether the service sees through the proxy to its clients, and believes no client that claims another address. */
async function clientAddress(publicUrl: string, { localAddress }: Probe, health: Health): Promise<Finding[]> {
  const check = 'client addresses'
  const own = normalizeAddress(localAddress)
  const seen = health.clientAddress
  if (seen === undefined) return []
  const forged = await probe(new URL(`${publicUrl.replace(/\/$/, '')}/api/v1/health`), {
    'x-forwarded-for': madeUp,
  })
  if (parse<Health>(forged).clientAddress === madeUp) {
    return [
      failed(check, {
        message: 'The service believes the address that a client writes into X-Forwarded-For.',
        reason:
          'Whoever guesses passwords evades every limit by address, and writes any address into the audit log.',
        remedy: 'let the proxy replace X-Forwarded-For, and list only its addresses in TRUSTED_PROXY_CIDRS',
      }),
    ]
  }
  if (seen === own || !isLoopback(seen) || isLoopback(own)) return []
  return [
    warning(check, {
      message: `The service sees ${seen} as the address of this machine's request, which came from ${own}.`,
      reason:
        'All clients look like the proxy: limits by address hold them together, and the audit log has the address of the proxy.',
      remedy: 'set TRUST_PROXY_HEADERS=true, and TRUSTED_PROXY_CIDRS to the addresses of the proxy',
    }),
  ]
}

export async function checkMail({ outside }: Config): Promise<Finding[]> {
  const { smtp } = outside
  if (!smtp) return []
  try {
    await verifySmtp(smtp)
    return [passed('mail', `${smtp.host}:${smtp.port} accepts mail`)]
  } catch (error) {
    return [
      failed('mail', {
        message: `The mail server ${smtp.host}:${smtp.port} refuses: ${sentenceOf(error)}.`,
        reason: 'Invitations, password resets and warnings reach nobody.',
        remedy: 'see SMTP_URL, SMTP_STARTTLS and SMTP_CA_FILE (svc help serve)',
      }),
    ]
  }
}

export async function checkSms({ outside }: Config): Promise<Finding[]> {
  const { twilio } = outside
  if (!twilio) return []
  try {
    const { status } = await probe(
      new URL(`/v2/Services/${encodeURIComponent(twilio.serviceSid)}`, twilio.apiUrl),
      {
        authorization: `Basic ${Buffer.from(`${twilio.accountSid}:${twilio.authToken}`).toString('base64')}`,
      },
    )
    if (status === 200) return [passed('SMS', 'The verification service answers')]
    return [smsFailed(`it answers ${status}`)]
  } catch (error) {
    return [smsFailed(sentenceOf(error))]
  }
}

const smsFailed = (why: string): Finding =>
  failed('SMS', {
    message: `The SMS verification service cannot be used: ${why}.`,
    reason: 'People whose second factor is their phone cannot sign in.',
    remedy: 'see TWILIO_ACCOUNT_SID, TWILIO_AUTH_TOKEN and TWILIO_VERIFY_SERVICE_SID',
  })
