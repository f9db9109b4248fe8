import type { z } from 'zod'
import { type Finding, failed, passed, warning } from '../../src/core/finding.ts'
import { parseJson } from '../../src/core/json.ts'
import { isLoopback, normalizeAddress } from '../../src/core/network.ts'
import { safeParse } from '../../src/core/schema.ts'
import { service } from '../../src/service/contract.ts'
import { version } from '../../src/version.ts'
import { proxyReader } from '../address.ts'
import type { Config } from '../config.ts'
import { verifySmtp } from '../integrations/smtp.ts'
import { clockFinding } from './database.ts'
import { type Probe, probe } from './endpoint.ts'
import { ownUrl, unreadyReason } from './readiness.ts'

/* The running service, as this machine and as its clients reach it, and what it needs outside. */

function healthOf(seen: Probe): z.infer<typeof service.health.reply> | undefined {
  const parsed = safeParse(service.health.reply, parseJson(seen.body))
  return parsed.success ? parsed.data : undefined
}

/** Whether it is svc that refuses: its errors have a code and the id of the request. */
const isRefusal = (seen: Probe): boolean => {
  const body = parseJson(seen.body) as { code?: unknown; requestId?: unknown } | null | undefined
  return typeof body?.code === 'string' && typeof body.requestId === 'string'
}

const isDown = {
  reason: 'Nobody can sign in, and agents report nothing.',
  remedy:
    'start it with svc serve, and read its log; one that listens on another port is examined with PORT=3001 svc doctor',
}

export async function checkService(config: Config): Promise<Finding[]> {
  const check = 'service'
  const url = ownUrl(config, '/api/v1/health')
  const seen = await attempt(() => probe(url))
  if (seen instanceof Error) {
    return [failed(check, { message: `No service answers: ${seen.message}.`, ...isDown })]
  }
  const health = healthOf(seen)
  if (!health) {
    if (isRefusal(seen)) return [refusal(check, seen)]
    return [
      failed(check, {
        message: `${url.origin} is answered by another program.`,
        reason: 'The service cannot listen there.',
        remedy: 'end that program, or choose another PORT',
      }),
    ]
  }
  const findings: Finding[] = []
  if (health.version !== version) {
    findings.push(
      warning(check, {
        message: `It runs version ${health.version}, and this is svc ${version}.`,
        reason: 'An upgrade takes effect when the service starts again.',
        remedy: 'restart the service',
      }),
    )
  }
  findings.push(...readiness(await probe(ownUrl(config, '/health/ready'))))
  return findings.length > 0 ? findings : [passed(check, `Version ${health.version}, ready`)]
}

/** What the database says of chains, dead letters and keys has checks of its own. */
function readiness(seen: Probe): Finding[] {
  const said = unreadyReason(seen)
  if (said === undefined) return []
  return [
    failed('service', {
      message: `It is not ready: ${said}.`,
      reason: 'Requests that need the database fail.',
      remedy: 'svc-serve(8) says under Health what each reason needs; the log of the service has the details',
    }),
  ]
}

function refusal(check: string, { status }: Probe): Finding {
  if (status !== 429) {
    const reason = 'It is overloaded, or cannot use its database.'
    return failed(check, { message: `It answers ${status}.`, reason, remedy: 'read the log of the service' })
  }
  return warning(check, {
    message: 'It answers 429: too many requests came from the address of this machine.',
    reason: 'Where a proxy runs on this machine and is not trusted, these are the requests of everybody.',
    remedy: 'set TRUST_PROXY_HEADERS and TRUSTED_PROXY_CIDRS for a proxy, or wait a minute',
  })
}

export async function attempt<T>(work: () => Promise<T>): Promise<T | Error> {
  try {
    return await work()
  } catch (error) {
    return error as Error
  }
}

export async function checkPublicUrl({ outside, proxies }: Config): Promise<Finding[]> {
  const check = 'public address'
  const { apiUrl } = outside
  if (apiUrl === undefined) return []
  const url = new URL(`${apiUrl}/api/v1/health`)
  const seen = await attempt(() => probe(url))
  const used = 'Agents and people use this address.'
  if (seen instanceof Error) {
    return [
      failed(check, {
        message: `PUBLIC_URL does not work: ${seen.message}.`,
        reason: used,
        remedy:
          'mend the proxy, its certificate or the name; or set PUBLIC_URL to the address that people use',
      }),
    ]
  }
  const health = healthOf(seen)
  if (!health) {
    if (isRefusal(seen)) return [refusal(check, seen)]
    const to = seen.headers.location
    return [
      failed(check, {
        message: `${url.href} answers ${seen.status}${to === undefined ? '' : ` (to ${to})`}, and not as this service does.`,
        reason: used,
        remedy: 'let the proxy pass requests on to the service with their path',
      }),
    ]
  }
  return [
    ...certificate(apiUrl, seen),
    ...(await clientAddress(url, proxies, seen, health.clientAddress)),
    ...clock(seen),
  ]
}

/** The Date header has whole seconds, and was set some time between the request and its answer. */
function clock({ headers, during }: Probe): Finding[] {
  const at = Date.parse(headers.date ?? '')
  return Number.isNaN(at) ? [] : clockFinding(at, at + 1000, during, 'PUBLIC_URL')
}

const day = 86_400_000

function certificate(publicUrl: string, { certificate: valid }: Probe): Finding[] {
  const check = 'public address'
  if (valid === undefined) return [passed(check, `${publicUrl} answers`)]
  const until = valid.to.toISOString().slice(0, 10)
  // Certificates of a few days are renewed in the last third of their time.
  const soon = Math.min(14 * day, (valid.to.getTime() - valid.from.getTime()) / 4)
  if (valid.to.getTime() - Date.now() > soon)
    return [passed(check, `${publicUrl} answers, certificate until ${until}`)]
  return [
    warning(check, {
      message: `The certificate of ${publicUrl} ends on ${until}.`,
      reason: 'From then on no agent and no person can connect.',
      remedy: 'renew it, and see why it was not renewed by itself',
    }),
  ]
}

/** An address of documentation (RFC 5737), which no client has. */
const madeUp = '192.0.2.1'

async function clientAddress(
  url: URL,
  proxies: Config['proxies'],
  { localAddress }: Probe,
  seen: string,
): Promise<Finding[]> {
  const own = normalizeAddress(localAddress)
  // The claims of a trusted address are believed, and have to be.
  const isBelieved = isLoopback(own) || proxyReader(proxies)(own)
  const forged = isBelieved ? undefined : healthOf(await probe(url, { 'x-forwarded-for': madeUp }))
  return [addressFinding({ own, isBelieved, seen, seenForged: forged?.clientAddress })]
}

/** Whether the service sees through the proxy to its clients, and believes no client that claims another address. */
export function addressFinding({
  own,
  isBelieved,
  seen,
  seenForged,
}: {
  /** This machine's address on the connection. */
  own: string
  /** Whether the service may believe what this machine claims. */
  isBelieved: boolean
  /** As the service saw the request of this machine. */
  seen: string
  /** As it saw one that claims to come from another address. */
  seenForged: string | undefined
}): Finding {
  const check = 'client addresses'
  if (isBelieved) {
    const elsewhere = 'whether it believes clients shows from another machine only'
    return passed(check, `The service sees this machine as ${seen}; ${elsewhere}`)
  }
  if (seenForged === madeUp) {
    return failed(check, {
      message: 'The service believes the address that a client writes into X-Forwarded-For.',
      reason:
        'Whoever guesses passwords evades every limit by address, and writes any address into the audit log.',
      remedy: 'let the proxy replace X-Forwarded-For, and list only its addresses in TRUSTED_PROXY_CIDRS',
    })
  }
  if (seen === own || !isLoopback(seen)) return passed(check, `The service sees this machine as ${seen}`)
  return warning(check, {
    message: `The service sees the requests of this machine (${own}) as those of ${seen}.`,
    reason:
      'All clients look like the proxy: limits by address hold them together, and the audit log has the address of the proxy.',
    remedy: 'set TRUST_PROXY_HEADERS=true, and TRUSTED_PROXY_CIDRS to the addresses of the proxy',
  })
}

export async function checkMail({ outside }: Config): Promise<Finding[]> {
  const { smtp } = outside
  if (!smtp) return []
  const refused = await attempt(() => verifySmtp(smtp))
  if (!(refused instanceof Error)) return [passed('mail', `${smtp.host}:${smtp.port} accepts mail`)]
  // A server may repeat what it was sent.
  const said = smtp.auth ? refused.message.replaceAll(smtp.auth.pass, '********') : refused.message
  return [
    failed('mail', {
      message: `The mail server ${smtp.host}:${smtp.port} cannot be used: ${said}.`,
      reason: 'Invitations, password resets and warnings reach nobody.',
      remedy: 'see SMTP_URL, SMTP_STARTTLS and SMTP_CA_FILE in svc-serve(8)',
    }),
  ]
}

export async function checkSms({ outside }: Config): Promise<Finding[]> {
  const { sms } = outside
  const request = sms?.provider.probe?.(sms.settings)
  if (!sms || !request) return []
  const seen = await attempt(() => probe(request.url, request.headers))
  if (!(seen instanceof Error) && seen.status === 200)
    return [passed('SMS', 'The verification service answers')]
  return [
    failed('SMS', {
      message: `The SMS verification service cannot be used: ${seen instanceof Error ? seen.message : `it answers ${seen.status}`}.`,
      reason: 'People whose second factor is their phone cannot sign in.',
      remedy: `see the variables ${sms.provider.prefix}_* in svc-serve(8)`,
    }),
  ]
}
