import { z } from 'zod'
import { endpoint, knownAgentAccess, userAccess } from '../../core/endpoint.ts'
import { cursorPageQuery } from '../../core/page.ts'
import {
  endInstant,
  idOf,
  instant,
  listOfEnum,
  text,
  truncatedObject,
  truncatedText,
} from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'
import { logPageOf, logSeq, logSequence } from '../contract.ts'

const levels = ['info', 'warning', 'error', 'critical'] as const
const eventLevel = z.enum(levels)
const eventCategory = z.enum(['security', 'hardware', 'application', 'system'])

export const EventLog = z
  .object({
    id: z.guid(),
    deviceId: idOf('device'),
    orgId: idOf('organization'),
    timestamp: instant.describe('By the clock of the machine'),
    level: eventLevel,
    category: eventCategory,
    source: z.string(),
    eventId: z.string().nullable(),
    message: z.string(),
    details: z.record(z.string(), z.unknown()).nullable(),
    createdAt: instant.describe('When the service got it'),
    seq: logSeq,
  })
  .meta({ id: 'EventLog' })
export type EventLog = z.output<typeof EventLog>

/** Unknown fields are dropped: an agent may be newer than the service. */
const NewEventLog = z.object({
  timestamp: instant,
  level: eventLevel,
  category: eventCategory,
  source: truncatedText(255),
  eventId: truncatedText(4096)
    .optional()
    .describe('Of one record: what has the same source and eventId is ignored'),
  message: truncatedText(2000),
  details: truncatedObject(32_768).optional(),
})
export type NewEventLog = z.output<typeof NewEventLog>

const tag = 'Logs'

export const eventLogs = {
  submit: endpoint({
    method: 'PUT',
    path: '/agents/:id/eventlogs',
    idempotencyKey: 'honored',
    summary: "Hand in entries of the machine's own logs; those that were handed in before are not counted",
    tag,
    access: knownAgentAccess,
    params: agentParams,
    body: z.object({ events: z.array(NewEventLog).max(5000, 'must be at most 5000 entries') }),
    reply: z.object({ success: z.literal(true), count: z.int().describe('How many were new') }),
    audit: { action: 'agent.eventlogs.submit', resource: 'device', gathered: true },
    maxBody: 10 * 1024 * 1024,
    gzip: true,
    errors: ['payload_too_large', 'log_quota_exceeded'],
    example: {
      events: [
        {
          timestamp: '2026-01-31T12:00:00Z',
          level: 'error',
          category: 'hardware',
          source: 'kernel',
          eventId: 'boot-7f3a/1042',
          message: 'nvme0: I/O error',
        },
      ],
    },
  }),
  list: endpoint({
    method: 'GET',
    path: '/devices/:id/eventlogs',
    summary: 'List what was written to the logs of a device, newest first',
    tag,
    access: userAccess({ permission: 'devices:read', key: true }),
    readQuery: true,
    params: z.strictObject({ id: idOf('device') }),
    query: z.strictObject({
      category: eventCategory.optional(),
      level: listOfEnum(levels)
        .optional()
        .describe(`Only these levels, such as error,critical: ${levels.join(', ')}`),
      source: text(255).optional().describe('Only from this source'),
      startDate: instant.optional().meta({ flag: 'since' }).describe('Only from this time on'),
      endDate: endInstant.optional().meta({ flag: 'until' }).describe('Only before this time'),
      after: logSequence,
      ...cursorPageQuery({ default: 100, max: 500 }),
    }),
    reply: logPageOf(EventLog),
  }),
}
