import { readFileSync } from 'node:fs'
import type { Archive } from '../../src/audit/retention/ports.ts'
import { SetupError } from '../../src/core/errors.ts'
import type { PhoneCodes } from '../../src/messages/ports.ts'
import { type Env, readBoolean, readInteger, readSecretVariable, readUrl } from '../variables.ts'
import { type OutboundSettings, readOutbound } from './guard.ts'
import { type ChosenProvider, chooseProvider } from './provider.ts'
import { archiveTargets, smsProviders } from './providers.ts'
import { type ReleaseSettings, readReleases } from './release-settings.ts'

export type SmtpSettings = {
  host: string
  port: number
  /** TLS from the first byte; else STARTTLS as `startTls` says. */
  secure: boolean
  /** `when-offered`, without a check of the certificate, is for servers on this machine. */
  startTls: 'required' | 'when-offered' | 'never'
  auth: { user: string; pass: string } | undefined
  /** `svc <noreply@example.com>` */
  from: string
  /** PEM, trusted besides the usual ones. */
  ca: string | undefined
}

/** How messages are sent; undefined: only to the development outbox. */
export type IntegrationSettings = {
  smtp: SmtpSettings | undefined
  sms: ChosenProvider<PhoneCodes> | undefined
  /** The public address for links; undefined: where the service listens. */
  publicUrl: string | undefined
  /** PUBLIC_URL itself: the service, where the other addresses may be of a front-end. */
  apiUrl: string | undefined
  /** The dashboard; undefined: none, and browsers get the pages of the service. */
  appUrl: string | undefined
  /** SAML_SP_ENTITY_ID: what identity providers call this service; undefined: the address of its metadata. */
  samlEntityId: string | undefined
  archive: ChosenProvider<Archive> | undefined
  releases: ReleaseSettings
  outbound: OutboundSettings
}

/** @throws SetupError */
export function readIntegrationSettings(env: Env): IntegrationSettings {
  const publicUrls = ['PUBLIC_URL', 'PUBLIC_APP_URL', 'DASHBOARD_URL'].map((name) => readUrl(env, name))
  return {
    smtp: readSmtp(env),
    sms: chooseProvider(smsProviders, env),
    publicUrl: publicUrls.find((url) => url !== undefined),
    apiUrl: publicUrls[0],
    appUrl: publicUrls[2] ?? publicUrls[1],
    samlEntityId: env.SAML_SP_ENTITY_ID || undefined,
    archive: chooseProvider(archiveTargets, env),
    releases: readReleases(env),
    outbound: readOutbound(env),
  }
}

type Server = Pick<SmtpSettings, 'host' | 'port' | 'secure' | 'auth'>

function readSmtp(env: Env): SmtpSettings | undefined {
  const url = readSecretVariable(env, 'SMTP_URL')
  if (url !== undefined && env.SMTP_HOST) throw new SetupError('Set SMTP_URL or SMTP_HOST, not both')
  const server = url !== undefined ? serverOf(url) : serverFrom(env)
  if (!server) return undefined
  const demanded = readBoolean(env, 'SMTP_STARTTLS', undefined)
  return {
    ...server,
    startTls:
      demanded === false ? 'never' : demanded || !onThisMachine(server.host) ? 'required' : 'when-offered',
    from: sender(env),
    ca: certificates(env),
  }
}

function serverOf(text: string): Server {
  // The parser's message may contain the password.
  const wrong = new SetupError(
    'SMTP_URL must be like smtp://user:password@mail.example.com:587, or smtps:// for TLS from the start; ' +
      'in its password write @ / # % as %40 %2F %23 %25',
  )
  const url = URL.parse(text)
  if (!url || !['smtp:', 'smtps:'].includes(url.protocol) || url.hostname === '') throw wrong
  if (url.search || url.hash || (url.pathname !== '' && url.pathname !== '/')) throw wrong
  try {
    const [user, pass] = [decodeURIComponent(url.username), decodeURIComponent(url.password)]
    if ((user === '') !== (pass === '')) throw wrong
    const secure = url.protocol === 'smtps:'
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
    const port = url.port === '' ? (secure ? 465 : 587) : Number(url.port)
    return { host, port, secure, auth: user === '' ? undefined : { user, pass } }
  } catch {
    // A URIError of one of the two; its text may be a secret.
    throw wrong
  }
}

function serverFrom(env: Env): Server | undefined {
  const host = env.SMTP_HOST
  const [user, pass] = [env.SMTP_USER, readSecretVariable(env, 'SMTP_PASSWORD')]
  if (!host) {
    const parts = [
      'SMTP_PORT',
      'SMTP_USER',
      'SMTP_PASSWORD',
      'SMTP_PASSWORD_FILE',
      'SMTP_SECURE',
      'MAIL_FROM',
    ]
    // A credential of systemd is in no variable.
    const set = parts.find((name) => env[name]) ?? (pass === undefined ? undefined : 'SMTP_PASSWORD')
    if (set) throw new SetupError(`${set} is set, but neither SMTP_HOST nor SMTP_URL`)
    return undefined
  }
  if (user && pass === undefined) throw new SetupError('SMTP_USER is set, but not SMTP_PASSWORD')
  if (!user && pass !== undefined) throw new SetupError('SMTP_PASSWORD is set, but not SMTP_USER')
  const secure = readBoolean(env, 'SMTP_SECURE', env.SMTP_PORT === '465')
  const port = readInteger(env, 'SMTP_PORT', secure ? 465 : 587, 1, 65_535)
  return { host, port, secure, auth: user && pass !== undefined ? { user, pass } : undefined }
}

const onThisMachine = (host: string): boolean =>
  host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)

function sender(env: Env): string {
  const from = env.MAIL_FROM
  if (!from) throw new SetupError('MAIL_FROM must be set to send mail, such as svc <noreply@example.com>')
  if (/^([^<>@,;\r\n]+ <[^\s<>@,;]+@[^\s<>@,;]+>|[^\s<>@,;]+@[^\s<>@,;]+)$/.test(from)) return from
  throw new SetupError('MAIL_FROM must be one address: noreply@example.com, or svc <noreply@example.com>')
}

function certificates(env: Env): string | undefined {
  if (!env.SMTP_CA_FILE) return undefined
  try {
    return readFileSync(env.SMTP_CA_FILE, 'utf8')
  } catch (error) {
    throw new SetupError(`SMTP_CA_FILE cannot be read: ${(error as Error).message}`)
  }
}
