import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { type EventType, eventTypes } from '../core/event-types.ts'
import { boundedObject, idOf, instant } from '../core/schema.ts'

/** Most characters of JSON in the data of an event: 64 Ki. */
const maxDataBytes = 65_536

export const eventData = boundedObject(z.record(z.string(), z.unknown()), maxDataBytes)

/** All except the test event of a webhook. */
export const raisableTypes = eventTypes.filter((type) => type !== 'webhook.test') as [
  EventType,
  ...EventType[],
]

export const events = {
  create: endpoint({
    method: 'POST',
    path: '/events',
    idempotencyKey: 'honored',
    summary: 'Raise an event: it is sent to the webhooks of the organization that subscribe to its type',
    tag: 'Webhooks',
    access: userAccess({ permission: '*:*', scopes: ['partner', 'system'] }),
    body: z.strictObject({
      orgId: idOf('organization').describe('Organization of the event'),
      type: z.enum(raisableTypes).describe('Event type'),
      data: eventData.default({}).meta({ flag: 'data' }).describe('Data of the event, in any form'),
    }),
    status: 202,
    reply: z.object({
      id: z.guid().describe('Id of the event, the same in every delivery'),
      type: z.enum(raisableTypes),
      timestamp: instant,
      orgId: idOf('organization'),
    }),
    audit: { action: 'event.create', resource: 'organization' },
    emits: raisableTypes,
    errors: ['org_access_denied'],
    example: { type: 'patch.installed', data: { patchId: 'KB5031356', version: '10.0.19045.3570' } },
  }),
}
