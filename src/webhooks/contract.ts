import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { eventTypes } from '../core/event-types.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { idOf, instant, secret, text } from '../core/schema.ts'
import { isReadableSecret } from '../core/webhook-signature.ts'

export const webhookStatus = z.enum(['active', 'paused', 'failed'])

/** An event type, or `*` for all of them. */
const eventName = z.enum([...eventTypes, '*'], {
  error: ({ input }) =>
    typeof input === 'string'
      ? `"${input.slice(0, 100)}" is not an event type: ${eventTypes.join(', ')}, or * for all`
      : 'must be an event type, or * for all',
})

const wantedEvents = z
  .array(eventName)
  .min(1, 'must name at least one event type, or * for all')
  .max(100, 'must have at most 100 items')
  .overwrite((all) => [...new Set(all)])
  .meta({ flag: 'event' })
  .describe('Event types it receives, or * for all')

/** An address with something else in place of the part after the ?, which may be a credential. */
export const redactQuery = (url: string, shown: (query: string) => string): string =>
  url.replace(/\?([^#]+)/s, (_, query: string) => `?${shown(query)}`)

/** Placeholder in replies for a value that may be a credential. */
export const hiddenValue = '********'

const notHidden = (value: string) => !value.includes(hiddenValue)
const hiddenFault = 'is the hidden form: send the value itself'

const header = z.strictObject({
  key: text(100, 1),
  value: secret(text(2000).refine(notHidden, hiddenFault)),
})

const headers = z
  .array(header)
  .max(20, 'must have at most 20 items')
  .describe('Custom headers of every delivery; their values are not displayed again')

const url = text(2048, 1)
  .refine(notHidden, hiddenFault)
  .meta({ flag: 'to' })
  .describe('HTTPS address of deliveries. The part after a ? is not displayed again')

const signingSecret = secret(
  text(255, 1).refine(isReadableSecret, 'after whsec_ there must be base64, or omit that prefix'),
)
const secretDescription = 'Secret that signs deliveries; write-only'

export const retryLimits = { retries: 15, delayMs: 86_400_000 }

const delay = z
  .int()
  .min(0, 'must be at least 0')
  .max(retryLimits.delayMs, `must be at most ${retryLimits.delayMs}, which is a day`)

/** How long deliveries are stored while a webhook is paused or failed. */
export const storedHours = 72

export const RetryPolicy = z.object({
  maxRetries: z.int().describe('Attempts after the first'),
  initialDelayMs: z.int(),
  backoffMultiplier: z.number(),
  maxDelayMs: z.int(),
})
export type RetryPolicy = z.output<typeof RetryPolicy>

export const defaultRetryPolicy: RetryPolicy = {
  maxRetries: 5,
  initialDelayMs: 1000,
  backoffMultiplier: 2,
  maxDelayMs: 300_000,
}

export const NewRetryPolicy = z
  .strictObject({
    maxRetries: z
      .int()
      .min(0, 'must be at least 0')
      .max(retryLimits.retries, `must be at most ${retryLimits.retries}`)
      .optional()
      .describe('Attempts after the first; 5 by default'),
    initialDelayMs: delay.optional().describe('Milliseconds before the first retry; 1000 by default'),
    backoffMultiplier: z
      .number()
      .min(1, 'must be at least 1')
      .max(100, 'must be at most 100')
      .optional()
      .describe('Factor between consecutive delays; 2 by default'),
    maxDelayMs: delay.optional().describe('Longest delay in milliseconds; 300000 by default'),
  })
  .refine(
    ({ initialDelayMs = defaultRetryPolicy.initialDelayMs, maxDelayMs = defaultRetryPolicy.maxDelayMs }) =>
      maxDelayMs >= initialDelayMs,
    { path: ['maxDelayMs'], error: 'must not be shorter than initialDelayMs' },
  )

export const Webhook = z
  .object({
    id: idOf('webhook'),
    orgId: idOf('organization'),
    name: z.string(),
    url: z.string().describe('The part after a ? is hidden'),
    hasSecret: z.boolean(),
    unreadable: z
      .array(z.enum(['url', 'secret', 'headers']))
      .describe(
        'Fields that cannot be decrypted with the keys of the service: set them again; nothing is delivered before',
      ),
    events: z.array(z.string()),
    headers: z.array(z.object({ key: z.string(), value: z.string().describe('Hidden') })),
    status: webhookStatus,
    statusReason: z.string().nullable().describe('Why the service itself paused it'),
    retryPolicy: RetryPolicy.nullable().describe('null: the default policy'),
    successCount: z.int().describe('Attempts with a 2xx response'),
    failureCount: z.int().describe('Attempts without a 2xx response'),
    lastDeliveryAt: instant.nullable(),
    lastSuccessAt: instant.nullable(),
    createdBy: z.guid(),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Webhook' })
export type Webhook = z.output<typeof Webhook>

export const WebhookWithStats = Webhook.extend({
  deliveryStats: z.object({
    total: z.int(),
    pending: z.int(),
    delivered: z.int(),
    failed: z.int(),
    retrying: z.int(),
    lastDeliveredAt: instant.nullable(),
  }),
}).meta({ id: 'WebhookRecord' })

export const NewWebhook = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe('Organization whose events it receives; inferred in organization scope'),
  name: text(255, 1).describe('Purpose of the webhook'),
  url,
  secret: signingSecret
    .nullable()
    .optional()
    .describe(`${secretDescription}. Generated by default, and displayed once; null: they are not signed`),
  events: wantedEvents,
  headers: headers.default([]),
})
export type NewWebhook = z.output<typeof NewWebhook>

export const WebhookChange = z.strictObject({
  name: text(255, 1).optional().describe('Purpose of the webhook'),
  url: url.optional(),
  secret: signingSecret
    .nullable()
    .optional()
    .describe(`${secretDescription}. The previous secret signs as well for 24 hours; null stops signing`),
  events: wantedEvents.optional(),
  headers: headers.optional(),
  status: webhookStatus
    .optional()
    .describe(`paused and failed webhooks store deliveries for ${storedHours} hours`),
})
export type WebhookChange = z.output<typeof WebhookChange>

const tag = 'Webhooks'
/**
 * A webhook receives events about every device of its organization, so only callers who see all devices may read its
 * deliveries or set its address.
 */
const reads = userAccess({ permission: 'organizations:read', wholeOrganization: true })
const writes = userAccess({ permission: 'organizations:write', wholeOrganization: true })
const inFiles = { wholeOrganization: true, workload: 'files' } as const
const readsInFiles = userAccess({ permission: 'organizations:read', ...inFiles })
const writesInFiles = userAccess({ permission: 'organizations:write', ...inFiles })
const params = z.strictObject({ id: idOf('webhook') })

export const webhooks = {
  list: endpoint({
    method: 'GET',
    path: '/webhooks',
    summary: 'List webhooks, newest first',
    tag,
    access: readsInFiles,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only webhooks of this organization'),
      status: webhookStatus.optional().describe('Only webhooks in this state'),
      ...pageQuery(),
    }),
    reply: pageOf(Webhook),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/webhooks',
    idempotencyKey: 'honored',
    summary: 'Create a webhook',
    tag,
    access: writesInFiles,
    body: NewWebhook,
    status: 201,
    reply: Webhook.extend({
      secret: secret(z.string()).optional().describe('The generated secret, displayed only once'),
    }),
    audit: { action: 'webhook.create', resource: 'webhook' },
    quota: 'WEBHOOKS',
    errors: ['org_access_denied'],
    example: {
      name: 'Ticket system',
      url: 'https://hooks.example.com/devices',
      secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
      events: ['device.enrolled', 'alert.triggered'],
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/webhooks/:id',
    summary: 'Show a webhook, and the number of its deliveries',
    tag,
    access: reads,
    params,
    reply: WebhookWithStats,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/webhooks/:id',
    summary: 'Change a webhook',
    tag,
    access: writesInFiles,
    params,
    body: WebhookChange,
    reply: Webhook,
    audit: { action: 'webhook.update', resource: 'webhook' },
    example: { events: ['*'], status: 'paused' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/webhooks/:id',
    summary: 'Delete a webhook and all its deliveries',
    tag,
    access: writesInFiles,
    params,
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'webhook.delete', resource: 'webhook' },
  }),
  setRetryPolicy: endpoint({
    method: 'PUT',
    path: '/webhooks/:id/retry-policy',
    summary: 'Set how often and when a failed delivery is retried; omitted values are the defaults',
    tag,
    access: writesInFiles,
    params,
    body: NewRetryPolicy.prefault({}),
    reply: Webhook,
    audit: { action: 'webhook.retry_policy.update', resource: 'webhook' },
    example: { maxRetries: 8, initialDelayMs: 2000 },
  }),
  rotateSecret: endpoint({
    method: 'POST',
    path: '/webhooks/:id/rotate-secret',
    idempotencyKey: 'honored',
    summary: 'Rotate the secret of a webhook; the previous one signs as well for 24 hours',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({ secret: signingSecret.optional().describe('The new secret; generated by default') })
      .prefault({}),
    reply: Webhook.extend({
      secret: secret(z.string()).describe('The new secret, displayed only once'),
      previousValidUntil: instant.nullable().describe('Time until which the previous secret signs as well'),
      warning: z.string(),
    }),
    audit: { action: 'webhook.secret.rotate', resource: 'webhook' },
    example: { secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD' },
  }),
}
