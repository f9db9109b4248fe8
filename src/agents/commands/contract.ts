import { z } from 'zod'
import { agentOrWatchdogAccess, endpoint, userAccess } from '../../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery } from '../../core/page.ts'
import { anyJson, anyObject, idOf, instant, safeParse } from '../../core/schema.ts'
import { truncate } from '../../core/text.ts'
import { agentParams } from '../../devices/contract.ts'
import { LogLevelChange } from '../../live/contract.ts'
import { AgentCommand } from '../contract.ts'
import { lenient } from '../lenient.ts'

/* Commands wait until the agent fetches them, at most seven days (rules.ts). Live queries do not wait. */

const SetAutoUpdate = z.strictObject({
  enabled: z.boolean().describe('Whether the agent may update itself'),
})
const Collect = z.strictObject({
  what: z
    .array(z.enum(['inventory', 'metrics', 'logs']))
    .min(1, 'must name something')
    .max(3, 'must be at most 3')
    .describe('What to report now'),
})

/** Payloads of the commands for agents, by type. */
export const durablePayloads = {
  set_auto_update: SetAutoUpdate,
  set_log_level: LogLevelChange,
  collect: Collect,
} as const
export type DurableType = keyof typeof durablePayloads

const types = Object.keys(durablePayloads) as [DurableType, ...DurableType[]]
export const commandType = z.enum(types)
const commandStatus = z.enum(['pending', 'sent', 'completed', 'failed'])
const targetRole = z.enum(['agent', 'watchdog']).describe('Program that executes it')

type Asked = { [T in DurableType]: { type: T; payload: z.output<(typeof durablePayloads)[T]> } }[DurableType]
export type NewCommand = Asked & { targetRole: z.output<typeof targetRole> }

export const NewCommand = z
  .strictObject({
    type: commandType,
    payload: anyObject.describe(
      'set_auto_update: { enabled }; set_log_level: { level, durationMinutes }; collect: { what: [inventory, metrics, logs] }',
    ),
    targetRole: targetRole.default('agent'),
  })
  .transform(({ type, payload, targetRole: role }, { issues }): NewCommand => {
    const read = safeParse(durablePayloads[type], payload)
    for (const issue of read.error?.issues ?? []) {
      issues.push({ ...issue, path: ['payload', ...issue.path] } as (typeof issues)[number])
    }
    if (type === 'set_auto_update' && role !== 'agent') {
      const message = 'must be agent: its watchdog does not update itself'
      issues.push({ code: 'custom', input: role, path: ['targetRole'], message })
    }
    return { type, payload: read.data, targetRole: role } as NewCommand
  })

const Queued = z.object({
  id: idOf('device_command'),
  deviceId: idOf('device'),
  type: z.string(),
  status: commandStatus,
  createdAt: instant,
})

export const DeviceCommand = Queued.extend({
  payload: z.record(z.string(), z.unknown()),
  targetRole,
  createdBy: z.guid().nullable(),
  expiresAt: instant.describe('When it expires if it was not fetched'),
  sentAt: instant.nullable().describe('When it was last fetched'),
  sentCount: z.int().describe('How often it was fetched'),
  completedAt: instant.nullable(),
}).meta({ id: 'DeviceCommand' })
export type DeviceCommand = z.output<typeof DeviceCommand>

/** The outcome of a command, as stored. */
const Outcome = z.object({
  status: z.enum(['completed', 'failed', 'timeout']),
  exitCode: z.int().nullable(),
  stdout: z.string().nullable(),
  stderr: z.string().nullable(),
  durationMs: z.number().nullable(),
  startedAt: instant.nullable(),
  error: z.string().nullable(),
  result: z.unknown(),
  dropped: z
    .object({ bytes: z.int(), at: instant })
    .optional()
    .describe('Set when its output was deleted to make room for later output: its size, and when'),
})
export type Outcome = z.output<typeof Outcome>

export const DeviceCommandDetail = DeviceCommand.extend({
  result: Outcome.nullable().describe('Outcome, with secrets redacted'),
}).meta({ id: 'DeviceCommandDetail' })
export type DeviceCommandDetail = z.output<typeof DeviceCommandDetail>

const tag = 'Devices'
const params = z.strictObject({ id: idOf('device') })
const reads = userAccess({ permission: 'devices:read', key: true })
const executes = userAccess({ permission: 'devices:execute', mfa: true })
const errors = ['device_out_of_use', 'tenant_inactive', 'conflict'] as const

export const deviceCommands = {
  create: endpoint({
    method: 'POST',
    path: '/devices/:id/commands',
    idempotencyKey: 'honored',
    summary: 'Send a command to the agent of a device; it waits for an agent that is away',
    tag,
    access: executes,
    params,
    body: NewCommand,
    status: 201,
    reply: Queued,
    audit: { action: 'device.command', resource: 'device' },
    emits: ['device.updated'],
    errors,
    example: { type: 'collect', payload: { what: ['inventory'] } },
  }),
  list: endpoint({
    method: 'GET',
    path: '/devices/:id/commands',
    summary: 'List the commands of a device, newest first',
    tag,
    access: reads,
    params,
    query: z.strictObject({
      status: commandStatus.optional(),
      type: commandType.optional(),
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(DeviceCommand),
  }),
  show: endpoint({
    method: 'GET',
    path: '/devices/:id/commands/:commandId',
    summary: 'Show a command and its outcome',
    tag,
    access: reads,
    params: z.strictObject({ id: idOf('device'), commandId: idOf('device_command') }),
    reply: DeviceCommandDetail,
  }),
  setAutoUpdate: endpoint({
    method: 'POST',
    path: '/devices/:id/auto-update',
    idempotencyKey: 'honored',
    summary: 'Set whether the agent of a device may update itself',
    tag,
    access: executes,
    params,
    body: SetAutoUpdate,
    status: 201,
    reply: Queued,
    audit: { action: 'device.auto_update.set', resource: 'device' },
    emits: ['device.updated'],
    errors,
    example: { enabled: false },
  }),
}

/** Most characters of output and of an error message. */
const maxLength = { output: 5 * 1024 * 1024, error: 10_000 }

const cutTo = (characters: number) => z.string().transform((text) => truncate(text, characters))

/** A result is never refused for its content: values that are not valid are dropped, long ones are truncated. */
export const NewOutcome = z.object({ status: z.enum(['completed', 'failed', 'timeout']) }).extend(
  lenient({
    exitCode: z.int(),
    stdout: cutTo(maxLength.output),
    stderr: cutTo(maxLength.output),
    durationMs: z.number().min(0).max(1e12),
    startedAt: instant,
    error: cutTo(maxLength.error),
    result: anyJson,
  }).shape,
)
export type NewOutcome = z.output<typeof NewOutcome>

export const agentCommands = {
  list: endpoint({
    method: 'GET',
    path: '/agents/:id/commands',
    summary: 'Fetch the pending commands, the oldest first, at most 10; they count as sent',
    tag: 'Agents',
    access: agentOrWatchdogAccess,
    params: agentParams,
    reply: z.object({ commands: z.array(AgentCommand) }),
  }),
  result: endpoint({
    method: 'POST',
    path: '/agents/:id/commands/:commandId/result',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Report the outcome of a command; a repeated or late report changes nothing',
    tag: 'Agents',
    access: agentOrWatchdogAccess,
    params: agentParams.extend({ commandId: idOf('device_command') }),
    body: NewOutcome,
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'agent.command.result', resource: 'device' },
    maxBody: 6 * 1024 * 1024,
    gzip: true,
    errors: ['command_role_mismatch', 'payload_too_large'],
    example: { status: 'completed', exitCode: 0, stdout: 'done' },
  }),
}
