import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery, pageQuery } from '../../core/page.ts'
import { idOf, instant, listOfEnum, text } from '../../core/schema.ts'
import { DiagnosticLog } from '../diagnostic/contract.ts'
import { EventLog } from '../events/contract.ts'

export const logKinds = ['diagnostic', 'events'] as const
export type LogKind = (typeof logKinds)[number]

/** Level names of both kinds, with each other's synonyms. */
export const levelsOfKind: Record<LogKind, Readonly<Record<string, string>>> = {
  diagnostic: { debug: 'debug', info: 'info', warn: 'warn', warning: 'warn', error: 'error' },
  events: { info: 'info', warn: 'warning', warning: 'warning', error: 'error', critical: 'critical' },
}
export const levelNames = ['debug', 'info', 'warn', 'warning', 'error', 'critical'] as const

/** The kind that a component or a source alone means. */
export function kindOf(component: string | undefined, source: string | undefined): LogKind | undefined {
  if ((component === undefined) === (source === undefined)) return undefined
  return component === undefined ? 'events' : 'diagnostic'
}

/** Devices of one request: their places fit into an address. */
export const maxPositions = 100

/** Heads of one page with `since`: each is looked up in both logs. */
export const maxHeadsSince = 100
/** Devices among whose entries the newest of all are looked for: each is looked up in both logs. */
export const maxDevicesOfNewest = 1000
/** Entries of a device from a time on, by their own time, among which the one that came in first is looked for. */
export const maxSince = 1000

const place = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:\\d{1,15}'

export type LogPosition = { deviceId: string; seq: number }

/** `DEVICE:SEQ,DEVICE:SEQ` */
const places = text(maxPositions * 53)
  .regex(
    new RegExp(`^${place}(?:,${place}){0,${maxPositions - 1}}$`, 'i'),
    `must be DEVICE:SEQ, with commas between at most ${maxPositions} of them`,
  )
  .transform((list) =>
    list.split(',').map((one): LogPosition => {
      const [deviceId = '', seq] = one.toLowerCase().split(':')
      return { deviceId, seq: Number(seq) }
    }),
  )

export const LogHead = z
  .object({
    deviceId: idOf('device'),
    hostname: z.string(),
    seq: z.int().describe('Of the entry that came in last, of any kind'),
    start: z
      .int()
      .optional()
      .describe(
        `With since: the seq before its first entry from that time on, among the first ${maxSince} of them by their time`,
      ),
  })
  .meta({ id: 'LogHead' })
export type LogHead = z.output<typeof LogHead>

const tag = 'Logs'
const access = userAccess({ permission: 'devices:read', key: true })
const orgId = idOf('organization').optional().describe('Only devices of this organization')

/** Sequence numbers are of a device. Whoever follows many devices has a place in each of them. */
export const logTails = {
  heads: endpoint({
    method: 'GET',
    path: '/logs/heads',
    summary: 'List the devices you can see that have logs, with the place of the newest entry of each',
    tag,
    access,
    readQuery: true,
    query: z.strictObject({
      orgId,
      since: instant
        .optional()
        .describe(
          `Also return where to begin in order to read from this time on; at most ${maxHeadsSince} devices a page`,
        ),
      ...cursorPageQuery({ default: 1000, max: 1000 }),
    }),
    reply: cursorPageOf(LogHead),
    errors: ['org_access_denied'],
  }),
  read: endpoint({
    method: 'GET',
    path: '/logs/tail',
    summary: 'Read the logs of many devices, of both kinds, in the order in which they came in',
    tag,
    access,
    readQuery: true,
    query: z.strictObject({
      orgId,
      after: places
        .optional()
        .describe(
          `Read each of these devices after this seq; without it, the newest entries of at most ${maxDevicesOfNewest} devices: those among the newest 200 of each`,
        ),
      kind: z.enum(logKinds).optional().describe('Only logs of this kind'),
      level: listOfEnum(levelNames)
        .optional()
        .describe(`Only these levels, such as warn,error: ${levelNames.join(', ')}`),
      component: text(100).optional().describe('Diagnostic logs only of this component of the agent'),
      source: text(255).optional().describe('Events only from this source'),
      limit: pageQuery({ default: 500, max: 1000 }).limit.describe(
        'Entries of each kind, shared by the devices, at most 1000',
      ),
    }),
    reply: z.object({
      diagnostic: z.array(DiagnosticLog),
      events: z.array(EventLog),
      places: z
        .array(
          z.object({
            deviceId: idOf('device'),
            seq: z.int().describe('All up to it was read: go on after it'),
            more: z.boolean().describe('More entries are there already'),
          }),
        )
        .describe('Of each device with entries after its place'),
      incompleteResults: z
        .boolean()
        .optional()
        .describe(
          `Without after: there are more than ${maxDevicesOfNewest} devices, and the entries are those of the first ones by id`,
        ),
    }),
    errors: ['org_access_denied'],
  }),
}
