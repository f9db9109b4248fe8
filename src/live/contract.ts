import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { endInstant, idOf, instant, queryNumber, text } from '../core/schema.ts'
import { maxEvents } from './wire/contract.ts'

const tag = 'Live queries'

const liveLevel = z.enum(['information', 'warning', 'error', 'critical', 'verbose'])

export const LiveLog = z
  .object({
    name: z.string(),
    displayName: z.string(),
    recordCount: z.int().nullable().describe('null: the agent does not know without counting'),
    maxSize: z.number().nullable().describe('Bytes; null: no limit that the agent knows'),
    retentionDays: z.int().nullable(),
    lastWriteTime: instant.nullable(),
  })
  .meta({ id: 'LiveLog' })
export type LiveLog = z.output<typeof LiveLog>

export const LiveEvent = z
  .object({
    recordId: z.number().describe('Names the entry within its log'),
    timeCreated: instant,
    level: liveLevel,
    source: z.string(),
    eventId: z.number().describe('0 where the log gives none'),
    message: z.string(),
    category: z.string().nullable(),
    user: z.string().nullable(),
    computer: z.string().nullable(),
    rawXml: z.string().nullable(),
  })
  .meta({ id: 'LiveEvent' })
export type LiveEvent = z.output<typeof LiveEvent>

const access = userAccess({ permission: 'devices:read', key: true })
/** Each query is audited with its device; the same query again within a quarter of an hour is not. */
const audit = { action: 'data.access', resource: 'device', quietFor: 15 } as const
const errors = [
  'device_offline',
  'device_unreachable',
  'device_failed',
  'device_timeout',
  'rate_limited',
] as const

const device = { deviceId: idOf('device').describe('The device') }
const log = { ...device, name: text(200, 1).meta({ flag: 'log' }).describe('The log, in any letter case') }
const recordId = text(16, 1)
  .regex(/^(0|[1-9]\d*)$/, 'must be a whole number')
  .refine((digits) => Number.isSafeInteger(Number(digits)), 'must be a whole number')
  .meta({ flag: 'record' })
  .describe('Number of the entry in its log')

const EventsQuery = z.strictObject({
  level: liveLevel.optional(),
  source: text(255).optional().describe('Only from this source'),
  startTime: instant
    .optional()
    .meta({ flag: 'since', formerFlag: 'from' })
    .describe('Only from this time on'),
  endTime: endInstant.optional().meta({ flag: 'until', formerFlag: 'to' }).describe('Only before this time'),
  eventId: queryNumber(
    z.number({ error: 'must be a number' }).int('must be a whole number').min(1, 'must be at least 1'),
  )
    .optional()
    .describe('Only with this event id'),
  ...pageQuery({ default: 50, max: maxEvents }),
})
export type EventsQuery = z.output<typeof EventsQuery>

/**
 * Queries about one log, under their own path. They are mounted twice; the list of logs once, because
 * /devices/:id/eventlogs lists the submitted entries.
 */
const questionsUnder = (path: string) => ({
  show: endpoint({
    method: 'GET',
    path: `${path}/:name`,
    summary: 'Ask a device about one of its logs',
    tag,
    access,
    params: z.strictObject(log),
    reply: LiveLog,
    audit,
    errors,
  }),
  events: endpoint({
    method: 'GET',
    path: `${path}/:name/events`,
    summary: 'Ask a device for entries of one of its logs, newest first',
    tag,
    access,
    params: z.strictObject(log),
    query: EventsQuery,
    reply: pageOf(LiveEvent),
    audit,
    errors,
  }),
  record: endpoint({
    method: 'GET',
    path: `${path}/:name/events/:recordId`,
    summary: 'Ask a device for one entry of one of its logs',
    tag,
    access,
    params: z.strictObject({ ...log, recordId }),
    reply: LiveEvent,
    audit,
    errors,
  }),
})

export const liveLogs = {
  list: endpoint({
    method: 'GET',
    path: '/system-tools/devices/:deviceId/eventlogs',
    summary: 'Ask a device which logs it has',
    tag,
    access,
    params: z.strictObject(device),
    reply: z.object({ data: z.array(LiveLog) }),
    audit,
    errors,
  }),
  ...questionsUnder('/system-tools/devices/:deviceId/eventlogs'),
}

export const deviceLogs = questionsUnder('/devices/:deviceId/eventlogs')

export const LogLevelChange = z.strictObject({
  level: z
    .enum(['debug', 'info', 'warn'])
    .describe('From which level on the agent hands in what it says of itself'),
  durationMinutes: z
    .int()
    .min(1, 'must be at least 1')
    .max(1440, 'must be at most 1440')
    .default(60)
    .describe('Minutes until it is warn again, at most 1440'),
})

export const logLevels = {
  set: endpoint({
    method: 'POST',
    path: '/devices/:id/log-level',
    idempotencyKey: 'honored',
    summary: 'Raise the log level of the agent of a device for a limited time',
    tag,
    access: userAccess({ permission: 'devices:execute', mfa: true }),
    params: z.strictObject({ id: idOf('device') }),
    body: LogLevelChange,
    reply: z.object({ level: z.string(), until: instant }),
    audit: { action: 'device.log_level.set', resource: 'device' },
    errors,
    example: { level: 'debug', durationMinutes: 30 },
  }),
}
