import { z } from 'zod'
import { endpoint, knownAgent, user } from '../../core/endpoint.ts'
import { longPageOf, longPageQuery } from '../../core/page.ts'
import { free, idOf, instant, text } from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'

const levels = ['debug', 'info', 'warn', 'error'] as const
export const logLevel = z.enum(levels)
type LogLevel = z.output<typeof logLevel>

export const DiagnosticLog = z
  .object({
    id: z.guid(),
    deviceId: idOf('device'),
    orgId: idOf('organization'),
    timestamp: instant.describe('By the clock of the machine'),
    level: logLevel,
    component: z.string(),
    message: z.string(),
    fields: z.record(z.string(), z.unknown()).nullable(),
    agentVersion: z.string().nullable(),
    createdAt: instant.describe('When the service got it'),
  })
  .meta({ id: 'DiagnosticLog' })
export type DiagnosticLog = z.output<typeof DiagnosticLog>

/** Fields that are not known are dropped: an agent may be newer than the service. */
const NewDiagnosticLog = z.object({
  timestamp: instant,
  level: logLevel,
  component: text(100, 1),
  message: text(10_000),
  fields: free(z.record(z.string(), z.unknown()), 32_768).optional(),
  agentVersion: text(50).optional(),
})
export type NewDiagnosticLog = z.output<typeof NewDiagnosticLog>

const isLevel = (name: string): name is LogLevel => logLevel.safeParse(name).success

/** `warn,error` */
const levelList = text(100)
  .transform((list) => list.split(',').map((name) => name.trim()))
  .refine((names) => names.every(isLevel), `must be some of ${levels.join(', ')}, with commas between them`)
  .transform((names) => names.filter(isLevel))

const tag = 'Logs'

export const diagnosticLogs = {
  submit: endpoint({
    method: 'POST',
    path: '/agents/:id/logs',
    summary: 'Hand in what the agent says of itself',
    tag,
    access: knownAgent,
    params: agentParams,
    body: z.object({ logs: z.array(NewDiagnosticLog).max(500, 'must be at most 500 entries') }),
    status: 201,
    reply: z.object({ received: z.int() }),
    audit: { unaudited: 'telemetry' },
    maxBody: 10 * 1024 * 1024,
    gzip: true,
    errors: ['payload_too_large'],
    example: {
      logs: [
        {
          timestamp: '2026-01-31T12:00:00Z',
          level: 'warn',
          component: 'heartbeat',
          message: 'The service did not answer',
          fields: { failures: 3 },
        },
      ],
    },
  }),
  list: endpoint({
    method: 'GET',
    path: '/devices/:id/diagnostic-logs',
    summary: 'List what the agent of a device said of itself, newest first',
    tag,
    access: user({ permission: 'devices:read', key: true }),
    params: z.strictObject({ id: idOf('device') }),
    query: z.strictObject({
      level: levelList.optional().describe(`Only these levels, such as warn,error: ${levels.join(', ')}`),
      component: text(100).optional().describe('Only of this component'),
      since: instant.optional().describe('Only from this time on'),
      until: instant.optional().describe('Only before this time'),
      search: text(200).optional().describe('Part of the message'),
      ...longPageQuery({ default: 100, max: 1000 }),
    }),
    reply: longPageOf(DiagnosticLog),
  }),
}
