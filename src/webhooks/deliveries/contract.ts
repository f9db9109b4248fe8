import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { eventTypes } from '../../core/event-types.ts'
import { cursorPageOf, cursorPageQuery } from '../../core/page.ts'
import { endInstant, idOf, instant } from '../../core/schema.ts'
import { eventData } from '../../events/contract.ts'

const deliveryStatus = z.enum(['pending', 'delivered', 'failed', 'retrying'])
export type DeliveryStatus = z.output<typeof deliveryStatus>

/** Why an attempt failed: a connection failure, or the first digit of the response status. */
const failureClass = z.enum([
  'blocked',
  'dns',
  'tls',
  'timeout',
  'refused',
  'broken',
  'redirect',
  '4xx',
  '5xx',
])
export type FailureClass = z.output<typeof failureClass>

export const WebhookDelivery = z
  .object({
    id: idOf('webhook_delivery'),
    webhookId: idOf('webhook'),
    orgId: idOf('organization'),
    sequence: z.int().describe('Its number among the deliveries of its webhook, from 1'),
    status: deliveryStatus,
    event: z.string(),
    eventId: z.guid(),
    payload: z.record(z.string(), z.unknown()),
    responseStatus: z.int().nullable(),
    responseBody: z.string().nullable().describe('Its first 1000 characters'),
    responseTimeMs: z.int().nullable(),
    errorMessage: z.string().nullable(),
    failureClass: failureClass.nullable(),
    hint: z.string().nullable().describe('What to check after a failure'),
    attempt: z.int().describe('Number of attempts made'),
    nextAttemptAt: instant
      .nullable()
      .describe('null on a pending delivery: stored while the webhook was paused'),
    retryOf: z.guid().nullable().describe('The delivery that it repeats, after a retry or in a replay'),
    createdAt: instant,
    deliveredAt: instant.nullable(),
  })
  .meta({ id: 'WebhookDelivery' })
export type WebhookDelivery = z.output<typeof WebhookDelivery>

const Queued = z.object({
  message: z.string(),
  delivery: WebhookDelivery.pick({ id: true, webhookId: true, status: true, event: true, attempt: true }),
})

const tag = 'Webhooks'
/**
 * A webhook receives events about every device of its organization, so only callers who see all devices may read its
 * deliveries or send them.
 */
const reads = userAccess({ permission: 'organizations:read', wholeOrganization: true })
const writes = userAccess({ permission: 'organizations:write', wholeOrganization: true })
const params = z.strictObject({ id: idOf('webhook') })
const deliveryParams = params.extend({
  deliveryId: idOf('webhook_delivery').describe('Id of the delivery'),
})

/** A time range in a query. */
const range = {
  since: instant.optional().meta({ past: true }).describe('Only deliveries created at this time or later'),
  until: endInstant.optional().meta({ past: true }).describe('Only deliveries created before this time'),
}

export const webhookDeliveries = {
  list: endpoint({
    method: 'GET',
    path: '/webhooks/:id/deliveries',
    summary: 'List the deliveries of a webhook, newest first',
    tag,
    access: reads,
    readQuery: true,
    params,
    query: z.strictObject({
      status: deliveryStatus.optional().describe('Only deliveries in this state'),
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(WebhookDelivery),
  }),
  dead: endpoint({
    method: 'GET',
    path: '/webhooks/dead-letters',
    summary:
      'List the deliveries of all webhooks that failed permanently and were not sent again, newest first',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only those of this organization'),
      ...range,
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(WebhookDelivery),
    errors: ['org_access_denied'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/webhooks/:id/deliveries/:deliveryId',
    summary: 'Show a delivery',
    tag,
    access: reads,
    params: deliveryParams,
    reply: WebhookDelivery,
  }),
  test: endpoint({
    method: 'POST',
    path: '/webhooks/:id/test',
    idempotencyKey: 'honored',
    summary: 'Send a test delivery, also while the webhook is paused',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({
        event: z.enum(eventTypes).default('webhook.test').describe('Its event type'),
        payload: eventData.optional().describe('Its data; a default text if omitted'),
      })
      .prefault({}),
    status: 202,
    reply: Queued,
    audit: { action: 'webhook.test', resource: 'webhook' },
    example: { event: 'alert.triggered', payload: { severity: 'high', title: 'Backup failed' } },
  }),
  retry: endpoint({
    method: 'POST',
    path: '/webhooks/:id/retry/:deliveryId',
    idempotencyKey: 'honored',
    summary: 'Send a failed delivery again as a new one, also while the webhook is paused',
    tag,
    access: writes,
    params: deliveryParams,
    status: 202,
    reply: Queued,
    audit: { action: 'webhook.retry', resource: 'webhook_delivery' },
  }),
  replay: endpoint({
    method: 'POST',
    path: '/webhooks/:id/replay',
    idempotencyKey: 'honored',
    summary:
      'Send deliveries again, oldest first: by default those that failed and those stored while it was paused',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({
        since: range.since,
        until: range.until,
        status: z
          .enum(['failed', 'kept', 'delivered'])
          .optional()
          .describe('Only those in this state; kept: stored while it was paused'),
        after: z
          .int()
          .min(0, 'must be at least 0')
          .default(0)
          .describe('Only those with a higher sequence, to continue a replay'),
        through: z
          .int()
          .min(0, 'must be at least 0')
          .optional()
          .describe('Only those up to this sequence: the `through` of the replay to continue'),
      })
      .prefault({}),
    status: 202,
    reply: z.object({
      message: z.string(),
      deliveries: z.int().describe('Number of deliveries sent again'),
      nextAfter: z.int().nullable().describe('Value of `after` to continue with; null when all are sent'),
      through: z
        .int()
        .describe('The last sequence at the start: pass it with nextAfter, so that none is sent twice'),
    }),
    audit: { action: 'webhook.replay', resource: 'webhook' },
    example: { status: 'failed', since: '2026-03-01T00:00:00Z' },
  }),
}
