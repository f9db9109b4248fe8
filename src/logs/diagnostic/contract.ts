import { z } from 'zod'
import { endpoint, knownAgentAccess, userAccess } from '../../core/endpoint.ts'
import { cursorPageQuery } from '../../core/page.ts'
import {
  endInstant,
  idOf,
  instant,
  listOfEnum,
  reportedText,
  text,
  truncatedObject,
  truncatedText,
} from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'
import { logPageOf, logSeq, logSequence } from '../contract.ts'

const levels = ['debug', 'info', 'warn', 'error'] as const
const logLevel = z.enum(levels)

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
    seq: logSeq,
  })
  .meta({ id: 'DiagnosticLog' })
export type DiagnosticLog = z.output<typeof DiagnosticLog>

/** Unknown fields are dropped: an agent may be newer than the service. */
const NewDiagnosticLog = z.object({
  timestamp: instant,
  level: logLevel,
  component: reportedText(100, 1),
  message: truncatedText(10_000),
  fields: truncatedObject(32_768).optional(),
  agentVersion: reportedText(50).optional(),
})
export type NewDiagnosticLog = z.output<typeof NewDiagnosticLog>

const tag = 'Logs'

export const diagnosticLogs = {
  submit: endpoint({
    method: 'POST',
    path: '/agents/:id/logs',
    idempotencyKey: 'honored',
    summary: 'Submit diagnostic logs of the agent',
    tag,
    access: { ...knownAgentAccess, watchdog: true },
    params: agentParams,
    body: z.object({ logs: z.array(NewDiagnosticLog).max(500, 'must be at most 500 entries') }),
    status: 201,
    reply: z.object({ received: z.int() }),
    audit: { unaudited: 'telemetry' },
    maxBody: 10 * 1024 * 1024,
    gzip: true,
    errors: ['payload_too_large', 'log_quota_exceeded'],
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
    summary: 'List the diagnostic logs of a device, newest first',
    tag,
    access: userAccess({ permission: 'devices:read', key: true }),
    readQuery: true,
    params: z.strictObject({ id: idOf('device') }),
    query: z.strictObject({
      level: listOfEnum(levels)
        .optional()
        .describe(`Only these levels, such as warn,error: ${levels.join(', ')}`),
      component: text(100).optional().describe('Only of this component'),
      since: instant.optional().describe('Only from this time on'),
      until: endInstant.optional().describe('Only before this time'),
      search: text(200).optional().describe('Part of the message'),
      after: logSequence,
      ...cursorPageQuery({ default: 100, max: 1000 }),
    }),
    reply: logPageOf(DiagnosticLog),
  }),
}
