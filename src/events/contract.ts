import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { type EventType, eventTypes } from '../core/event-types.ts'
import { boundedObject, idOf, instant } from '../core/schema.ts'

/** Most characters of JSON in the data of an event: 64 KiB. */
const maxDataBytes = 65_536

export const eventData = boundedObject(z.record(z.string(), z.unknown()), maxDataBytes)

/** All but the one that asks a webhook whether it hears. */
export const raisableTypes = eventTypes.filter((type) => type !== 'webhook.test') as [
  EventType,
  ...EventType[],
]

export const events = {
  create: endpoint({
    method: 'POST',
    path: '/events',
    idempotencyKey: 'honored',
    summary: 'Raise an event: it goes to the webhooks of the organization that ask for its type',
    tag: 'Webhooks',
    access: userAccess({ permission: '*:*', scopes: ['partner', 'system'] }),
    body: z.strictObject({
      orgId: idOf('organization').describe('Organization it happened in'),
      type: z.enum(raisableTypes).describe('What happened'),
      data: eventData.default({}).meta({ flag: 'data' }).describe('What there is to know about it'),
    }),
    status: 202,
    reply: z.object({
      id: z.guid().describe('The event: the same in every delivery of it'),
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
