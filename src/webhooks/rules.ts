import type { Fault } from '../core/errors.ts'
import { invalid } from '../core/errors.ts'
import { withoutUndefined } from '../core/json.ts'
import { leadsElsewhere, type ResolvedHost } from '../core/outbound.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import {
  defaultRetryPolicy,
  hiddenValue,
  type NewWebhook,
  type RetryPolicy,
  redactQuery,
  type Webhook,
  type WebhookChange,
} from './contract.ts'

/** A webhook with its private fields. */
export type WebhookRecord = Omit<
  Webhook,
  'hasSecret' | 'unreadable' | 'successCount' | 'failureCount' | 'lastDeliveryAt' | 'lastSuccessAt'
> &
  SigningSecrets & {
    /** Stored values that no key of the service decrypts: they stay until a user sets them again. */
    unreadable: { [C in EncryptedWebhookColumn]?: string }
  }

export type EncryptedWebhookColumn = 'url' | 'secret' | 'previous_secret' | 'headers'

export type SigningSecrets = {
  secret: string | null
  /** Also signs deliveries, until `previousUntil`. */
  previousSecret: string | null
  previousUntil: Instant | null
}

export type Header = { key: string; value: string }

/** The API's names of states, and the stored ones. A state of a newer release stays unchanged. */
const stored = { active: 'active', paused: 'disabled', failed: 'error' } as const
const shown = { active: 'active', disabled: 'paused', error: 'failed' } as const

export const toStoredStatus = (status: Webhook['status']): string => stored[status] ?? status
export const toWireStatus = (status: string): Webhook['status'] =>
  shown[status as keyof typeof shown] ?? (status as Webhook['status'])

const secretOverlapSeconds = 24 * 3600

export function makeWebhook(
  wanted: NewWebhook & { orgId: string },
  made: { id: string; by: string; now: Instant },
): WebhookRecord {
  const { orgId, name, url, events, headers } = wanted
  const secret = wanted.secret ?? null
  return {
    id: made.id,
    orgId,
    name,
    url,
    secret,
    events,
    headers,
    status: 'active',
    statusReason: null,
    retryPolicy: null,
    previousSecret: null,
    previousUntil: null,
    unreadable: {},
    createdBy: made.by,
    createdAt: made.now,
    updatedAt: made.now,
  }
}

/** @throws invalid_request for a URL of another origin without the headers */
export function applyChange(webhook: WebhookRecord, change: WebhookChange, now: Instant): WebhookRecord {
  const { name, url, secret, events, headers, status } = change
  // Their values are displayed to nobody: whoever changes the URL must not receive them there.
  const hasHeaders = webhook.headers.length > 0 || webhook.unreadable.headers !== undefined
  const keepsHeaders = headers === undefined && hasHeaders
  if (url !== undefined && keepsHeaders && leadsElsewhere(url, webhook.url)) {
    const message = 'must be sent with a URL of another scheme, host or port: their values are secret'
    throw invalid([{ path: 'body.headers', message }])
  }
  return {
    ...webhook,
    ...(name !== undefined && { name }),
    ...(url !== undefined && { url }),
    ...(events !== undefined && { events }),
    ...(headers !== undefined && { headers }),
    ...(status !== undefined && { status, statusReason: null }),
    ...(secret !== undefined && replaceSecret(webhook, secret, now)),
    unreadable: without(webhook.unreadable, [
      ...(url === undefined ? [] : ['url' as const]),
      ...(headers === undefined ? [] : ['headers' as const]),
      ...(secret === undefined ? [] : signingColumns),
    ]),
    updatedAt: now,
  }
}

/** The webhook with a new secret. */
export const withRotatedSecret = (webhook: WebhookRecord, secret: string, now: Instant): WebhookRecord => ({
  ...webhook,
  ...replaceSecret(webhook, secret, now),
  unreadable: without(webhook.unreadable, signingColumns),
  updatedAt: now,
})

const signingColumns: readonly EncryptedWebhookColumn[] = ['secret', 'previous_secret']

const without = (
  unreadable: WebhookRecord['unreadable'],
  columns: readonly EncryptedWebhookColumn[],
): WebhookRecord['unreadable'] =>
  Object.fromEntries(
    Object.entries(unreadable).filter(([column]) => !columns.includes(column as EncryptedWebhookColumn)),
  )

/** The fields that must be set again before anything can be delivered. */
export const unreadableFields = ({ unreadable }: WebhookRecord): Webhook['unreadable'] =>
  (['url', 'secret', 'headers'] as const).filter((column) => unreadable[column] !== undefined)

/** Replaces the secret: the previous one also signs for a day, unless signing is turned off or starts now. */
function replaceSecret(before: SigningSecrets, secret: string | null, now: Instant): SigningSecrets {
  if (secret === before.secret) {
    const { previousSecret, previousUntil } = before
    return { secret, previousSecret, previousUntil }
  }
  if (secret === null || before.secret === null) return { secret, previousSecret: null, previousUntil: null }
  return { secret, previousSecret: before.secret, previousUntil: addSeconds(now, secretOverlapSeconds) }
}

/** The secrets that sign deliveries now, newest first. */
export const activeSecrets = (
  { secret, previousSecret, previousUntil }: SigningSecrets,
  now: Instant,
): string[] => [
  ...(secret !== null ? [secret] : []),
  ...(previousSecret !== null && previousUntil !== null && previousUntil > now ? [previousSecret] : []),
]

/** The webhook as replies show it, without values that may be credentials. */
export function redactWebhook(
  webhook: WebhookRecord,
): Omit<WebhookRecord, keyof SigningSecrets | 'unreadable'> & Pick<Webhook, 'hasSecret' | 'unreadable'> {
  const { secret, previousSecret: _, previousUntil: __, unreadable, ...rest } = webhook
  const headers = webhook.headers.map(({ key }) => ({ key, value: hiddenValue }))
  return {
    ...rest,
    url: redactUrl(webhook.url),
    headers,
    hasSecret: secret !== null || unreadable.secret !== undefined,
    unreadable: unreadableFields(webhook),
  }
}

const redactUrl = (url: string): string => redactQuery(url, () => hiddenValue)

/** The changed fields, before and after; of a secret only whether one is set. */
export function auditDiff(before: WebhookRecord, after: WebhookRecord): { before: object; after: object } {
  const fields = ['name', 'url', 'events', 'headers', 'status', 'retryPolicy', 'secret'] as const
  const changed = fields.filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]))
  const of = (webhook: WebhookRecord) => {
    const shown: Record<string, unknown> = {
      ...redactWebhook(webhook),
      secret: webhook.secret === null ? 'none' : 'set',
    }
    return Object.fromEntries(changed.map((field) => [field, shown[field]]))
  }
  return { before: of(before), after: of(after) }
}

/** null when nothing was set. */
export function toRetryPolicy(
  wanted: { [K in keyof RetryPolicy]?: RetryPolicy[K] | undefined },
): RetryPolicy | null {
  const said = withoutUndefined(wanted)
  if (Object.keys(said).length === 0) return null
  return { ...defaultRetryPolicy, ...said }
}

const wrongUrl = 'Invalid webhook URL'

/** The fault of a URL, checked before its host is resolved; undefined when there is none. */
export function urlFault(text: string): string | undefined {
  if (!URL.canParse(text)) return 'Invalid URL format'
  const url = new URL(text)
  if (url.protocol !== 'https:') return 'Webhook URL must use HTTPS'
  const host = url.hostname.replace(/\.+$/, '').toLowerCase()
  if (host === '') return 'Webhook URL hostname is required'
  if (host === 'localhost' || host.endsWith('.localhost') || host.endsWith('.local')) {
    return 'Webhook URL cannot target localhost or local network hostnames'
  }
  return undefined
}

/** Checked last: the faults of the target are more important. */
export function credentialsFault(text: string): string | undefined {
  const { username, password } = new URL(text)
  if (username === '' && password === '') return undefined
  return 'Webhook URL must not contain a user name or password: send them as a header'
}

export function resolvedHostFault(at: ResolvedHost): string | undefined {
  if (at.network === 'private') return 'Webhook URL cannot target private, loopback, or link-local addresses'
  if (at.network === 'unresolved') return 'Webhook URL hostname could not be resolved'
  if (at.network === 'private by name') {
    return `Webhook URL resolves to blocked address space: ${at.addresses.join(', ')}`
  }
  return undefined
}

/** @throws invalid_request when there is a fault */
export function checkUrl(fault: string | undefined): void {
  if (fault !== undefined) throw invalid([{ path: 'body.url', message: fault }], wrongUrl)
}

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const reserved =
  /^(accept-encoding|connection|content-length|content-type|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|user-agent|x-service-.*|webhook-.*)$/i

/** Checks custom headers. @throws invalid_request */
export function checkHeaders(headers: readonly Header[]): void {
  const seen = new Set<string>()
  const faults: Fault[] = []
  for (const [i, { key, value }] of headers.entries()) {
    const name = key.toLowerCase()
    const at = `body.headers.${i}`
    if (!token.test(key)) faults.push({ path: `${at}.key`, message: 'is not the name of a header' })
    else if (reserved.test(key)) faults.push({ path: `${at}.key`, message: `Header "${key}" is reserved` })
    else if (seen.has(name)) faults.push({ path: `${at}.key`, message: `Header "${key}" occurs twice` })
    if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
      faults.push({ path: `${at}.value`, message: 'must contain only Latin-1 without control characters' })
    }
    seen.add(name)
  }
  if (faults.length > 0) throw invalid(faults)
}
