import { type Finding, passed, warning } from '../../src/core/finding.ts'
import { isLoopback } from '../../src/core/network.ts'
import type { Config } from '../config.ts'
import { describeFallback } from '../secrets/fallbacks.ts'

/* What the settings alone show. */

export function checkSettings(config: Config): Finding[] {
  const found = [
    ...weakSecrets(config),
    ...fallbacksOf(config),
    ...sharedPepper(config),
    ...previousKeys(config),
    ...publicAddress(config),
    ...trustedProxies(config),
    ...mail(config),
  ]
  return found.length > 0 ? found : [passed('settings', 'Complete')]
}

function weakSecrets({ weakSecrets }: Config): Finding[] {
  if (weakSecrets === undefined) return []
  const reason =
    'Whoever has a token or a hash can guess a short key without asking the service; in production it does not start.'
  return [
    warning('settings', {
      message: `${weakSecrets}.`,
      reason,
      remedy: 'replace it as svc-serve(8) says under Changing a key',
    }),
  ]
}

/** Where a secret is not set, another key serves as it, and must not change alone. */
const fallbacksOf = ({ fallbacks }: Config): Finding[] =>
  fallbacks.map((one) => {
    const { message, reason, remedy } = describeFallback(one)
    return warning('settings', { message: `${message}.`, reason: `${reason}.`, remedy })
  })

/** A pepper that was set to another key changes with it as well. */
function sharedPepper({ secrets, fallbacks }: Config): Finding[] {
  if (fallbacks.some(({ name }) => name === 'ENROLLMENT_KEY_PEPPER')) return []
  const { enrollmentPepper, encryption, jwt } = secrets
  const other =
    enrollmentPepper === encryption
      ? 'APP_ENCRYPTION_KEY'
      : enrollmentPepper === jwt
        ? 'JWT_SECRET'
        : undefined
  if (other === undefined) return []
  return [
    warning('settings', {
      message: `ENROLLMENT_KEY_PEPPER is the same as ${other}.`,
      reason: 'Whoever learns one of them has both, and neither can be changed alone.',
      remedy: 'change ENROLLMENT_KEY_PEPPER as svc-serve(8) says under Changing a key',
    }),
  ]
}

function previousKeys({ previous, signing }: Config): Finding[] {
  const names = [
    ...(previous.jwt === undefined ? [] : ['JWT_SECRET']),
    ...(previous.encryption === undefined ? [] : ['APP_ENCRYPTION_KEY']),
    ...(previous.enrollmentPepper === undefined ? [] : ['ENROLLMENT_KEY_PEPPER']),
    ...(previous.recoveryPepper === undefined ? [] : ['MFA_RECOVERY_CODE_PEPPER']),
    ...(signing.previous === undefined || signing.isPreviousAssumed ? [] : ['AUDIT_SIGNING_KEY']),
  ]
  return names.length === 0 ? [] : [passed('settings', `Being rotated: ${names.join(', ')}`)]
}

function publicAddress({ outside, proxies, production, host }: Config): Finding[] {
  const { publicUrl } = outside
  if (publicUrl === undefined) {
    if (!production && isLoopbackHost(host)) return []
    return [
      warning('settings', {
        message: 'PUBLIC_URL is not set.',
        reason:
          'Links in mails, and identity providers that send people back, need the address that people use.',
        remedy: 'set PUBLIC_URL, such as https://svc.example.com',
      }),
    ]
  }
  const { protocol, hostname } = new URL(publicUrl)
  if (protocol === 'http:' && !isLoopbackHost(hostname)) {
    return [
      warning('settings', {
        message: `PUBLIC_URL is ${publicUrl}, without TLS.`,
        reason: 'Passwords and tokens cross the network in clear.',
        remedy: 'put a proxy with TLS before the service, and set PUBLIC_URL to its https address',
      }),
    ]
  }
  if (protocol === 'https:' && proxies === undefined) {
    return [
      warning('settings', {
        message: 'PUBLIC_URL is https, and TRUST_PROXY_HEADERS is off.',
        reason:
          'The proxy that ends TLS looks like the only client: limits by address hold all people together, and the audit log has its address.',
        remedy: 'set TRUST_PROXY_HEADERS=true, and TRUSTED_PROXY_CIDRS to the addresses of the proxy',
      }),
    ]
  }
  return []
}

function trustedProxies({ proxies }: Config): Finding[] {
  const wide = (proxies?.trusted ?? []).filter((range) => range.endsWith('/0'))
  if (wide.length === 0) return []
  return [
    warning('settings', {
      message: `TRUSTED_PROXY_CIDRS has ${wide.join(' and ')}: everybody is a proxy.`,
      reason:
        'Whoever sends a request says which address it comes from: limits by address hold nobody, and the audit log has what they say.',
      remedy: 'list only the addresses of the proxy in TRUSTED_PROXY_CIDRS',
    }),
  ]
}

const isLoopbackHost = (host: string): boolean =>
  host === 'localhost' || isLoopback(host.replace(/^\[|\]$/g, ''))

function mail({ outside }: Config): Finding[] {
  if (outside.smtp) return []
  return [
    warning('mail', {
      message: 'Mail is not configured.',
      reason:
        'Invitations and password resets reach nobody: they are written to outbox/ in the data directory.',
      remedy: 'set SMTP_URL and MAIL_FROM; until then svc dev outbox shows them',
    }),
  ]
}
