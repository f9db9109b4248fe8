import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { idOf, queryNumber } from '../../core/schema.ts'

const RelayedRequest = z
  .object({
    sequence: z.int().describe('Sequence of the delivery that it is a copy of'),
    headers: z
      .record(z.string(), z.string())
      .describe(
        'With signatures made now; without the custom headers of the webhook, whose values are secret',
      ),
    body: z.string().describe('The exact text that is signed'),
  })
  .meta({ id: 'RelayedRequest' })

/** As for a test, whose sender has any data signed for the receiver: copies have only what is sent to it. */
const access = userAccess({ permission: 'organizations:write', wholeOrganization: true })

export const webhookRelay = {
  read: endpoint({
    method: 'GET',
    path: '/webhooks/:id/relay',
    summary:
      'Read copies of the next deliveries of a webhook, signed as they are sent, for a receiver that the service cannot reach',
    tag: 'Webhooks',
    access,
    params: z.strictObject({ id: idOf('webhook') }),
    query: z.strictObject({
      after: queryNumber(z.int('must be a whole number').min(0, 'must be at least 0'))
        .optional()
        .describe('Only deliveries with a higher sequence; without it none, but where to begin'),
    }),
    reply: z.object({
      data: z.array(RelayedRequest).describe('In order, at most 20'),
      nextAfter: z.int().describe('Value of `after` to continue with'),
    }),
    audit: { action: 'webhook.relay', resource: 'webhook', quietFor: 60 },
  }),
}
