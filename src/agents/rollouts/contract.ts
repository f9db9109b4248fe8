import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery, pageOf, pageQuery } from '../../core/page.ts'
import { idOf, instant, queryNumber } from '../../core/schema.ts'
import { version } from '../versions/contract.ts'

export const rolloutStatus = z.enum(['preparing', 'running', 'halted', 'completed', 'aborted', 'rolled_back'])
export type RolloutStatus = z.output<typeof rolloutStatus>

export const rolloutDeviceState = z.enum(['waiting', 'offered', 'soaking', 'updated', 'failed', 'withdrawn'])
export type RolloutDeviceState = z.output<typeof rolloutDeviceState>

const Wave = z.object({
  percent: z
    .number()
    .nullable()
    .describe('Share of all devices reached with this wave, earlier waves included'),
  filterId: idOf('filter').nullable().describe('Or the filter that selects the devices'),
  filterName: z.string().nullable(),
  devices: z.int().nullable().describe('Number of its devices; null while they are being assigned'),
})

export const Rollout = z
  .object({
    id: idOf('agent_rollout'),
    version: z.string(),
    status: rolloutStatus,
    waves: z.array(Wave),
    wave: z.int().nullable().describe('The wave that is open, from 1; null before'),
    waveBeganAt: instant.nullable(),
    gateMinutes: z.int(),
    soakMinutes: z.int(),
    maxFailurePercent: z.int(),
    haltReason: z.string().nullable().describe('Why it was halted, or ended automatically'),
    isCurrent: z
      .boolean()
      .describe('Whether it determines what its devices are offered; until a promotion or another rollout'),
    createdBy: z.guid().nullable(),
    createdAt: instant,
    updatedAt: instant,
    endedAt: instant.nullable(),
  })
  .meta({ id: 'AgentRollout' })
export type Rollout = z.output<typeof Rollout>

const counts = {
  waiting: z.int(),
  offered: z.int(),
  soaking: z.int().describe('On the version, and observed for a while'),
  updated: z.int(),
  failed: z.int(),
  withdrawn: z.int().describe('Decommissioned, quarantined or no longer to be updated'),
  onVersion: z.int().describe('Number of devices that report the version now, in any state'),
}

export const RolloutProgress = Rollout.extend({
  waves: z.array(Wave.extend(counts)),
  failures: z.object({
    counted: z.int().describe('Since the wave started, or since a user resumed in spite of earlier failures'),
    allowed: z.int().nullable().describe('One more halts it; null before a wave is open'),
    reasons: z.array(z.object({ reason: z.string(), devices: z.int() })).describe('The most frequent'),
  }),
  awaitingWindow: z
    .object({ devices: z.int(), nextOpensAt: instant.nullable() })
    .describe(
      'Online devices of the open waves outside of their maintenance windows, and when the next opens',
    ),
  next: z
    .object({
      step: z.enum(['draw', 'open_wave', 'complete', 'decide', 'return']),
      wave: z.int().nullable().describe('The wave to open'),
      at: instant.nullable().describe('Earliest time; null when it is not known'),
      because: z.string().describe('What it waits for'),
    })
    .nullable()
    .describe('null when it has ended'),
}).meta({ id: 'AgentRolloutProgress' })
export type RolloutProgress = z.output<typeof RolloutProgress>

export const RolloutDevice = z.object({
  id: idOf('device'),
  orgId: idOf('organization'),
  hostname: z.string(),
  status: z.string(),
  wave: z.int(),
  state: rolloutDeviceState,
  fromVersion: z.string(),
  agentVersion: z.string().describe('Version it reports now'),
  offeredAt: instant.nullable(),
  settledAt: instant.nullable(),
  reason: z.string().nullable(),
})
export type RolloutDevice = z.output<typeof RolloutDevice>

const maxWaves = 20

/** Exactly one of the two; a percentage is of all devices and includes those of the waves before. */
const NewWave = z
  .strictObject({
    percent: z
      .number()
      .min(0.01, 'must be at least 0.01')
      .max(100, 'must be at most 100')
      .optional()
      .describe('Share of all devices reached with this wave, earlier waves included'),
    filterId: idOf('filter')
      .optional()
      .describe('Filter that selects among the remaining devices of all organizations'),
  })
  .refine(({ percent, filterId }) => (percent === undefined) !== (filterId === undefined), {
    error: 'must have either percent or filterId',
  })
export type NewWave = z.output<typeof NewWave>

const day = 24 * 60
const minutes = z
  .int()
  .min(1, 'must be at least 1')
  .max(7 * day, `must be at most ${7 * day}`)

export const NewRollout = z.strictObject({
  version: version.describe('Version to roll out, such as 1.2.0'),
  waves: z
    .array(NewWave)
    .min(1, 'must name at least one wave')
    .max(maxWaves, `must be at most ${maxWaves} waves`)
    .describe('Devices it is offered to, one wave after the other'),
  gateMinutes: minutes.default(15).describe('Time for a device to report the version it was offered'),
  soakMinutes: z
    .int()
    .min(0, 'must be at least 0')
    .max(7 * day, `must be at most ${7 * day}`)
    .default(10)
    .describe('Time that updated devices must stay alive before the next wave'),
  maxFailurePercent: z
    .int()
    .min(0, 'must be at least 0')
    .max(100, 'must be at most 100')
    .default(5)
    .describe('Failure rate of a wave above which the rollout halts'),
})
export type NewRollout = z.output<typeof NewRollout>

const tag = 'Agent rollouts'
const reads = userAccess({ scopes: ['system'], permission: 'devices:read' })
const writes = userAccess({ scopes: ['system'], permission: 'organizations:write', mfa: true })
const params = z.strictObject({ id: idOf('agent_rollout') })
const audited = (action: string) => ({ action, resource: 'agent_rollout' as const })

const move = (verb: string, action: string, summary: string) =>
  endpoint({
    method: 'POST',
    path: `/agent-rollouts/:id/${verb}`,
    idempotencyKey: 'honored',
    summary,
    tag,
    access: writes,
    params,
    reply: Rollout,
    audit: audited(`agent.rollout.${action}`),
    errors: ['conflict'],
  })

export const agentRollouts = {
  list: endpoint({
    method: 'GET',
    path: '/agent-rollouts',
    summary: 'List staged rollouts of agent versions, newest first',
    tag,
    access: reads,
    query: z.strictObject(pageQuery()),
    reply: pageOf(Rollout),
  }),
  start: endpoint({
    method: 'POST',
    path: '/agent-rollouts',
    idempotencyKey: 'honored',
    summary: 'Roll out a version to agents in waves; halts automatically after too many failures',
    tag,
    access: writes,
    readQuery: true,
    body: NewRollout,
    status: 201,
    reply: Rollout,
    audit: audited('agent.rollout.start'),
    errors: [
      'rollout_in_progress',
      'conflict',
      'rollback_needed',
      'below_minimum_version',
      'filter_too_expensive',
    ],
    example: {
      version: '1.2.0',
      waves: [{ filterId: '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11' }, { percent: 10 }, { percent: 100 }],
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/agent-rollouts/:id',
    summary: 'Show the progress of a rollout: its waves, failures with reasons, and the next step',
    tag,
    access: reads,
    params,
    reply: RolloutProgress,
  }),
  devices: endpoint({
    method: 'GET',
    path: '/agent-rollouts/:id/devices',
    summary: 'List the devices of a rollout by wave',
    tag,
    access: reads,
    readQuery: true,
    params,
    query: z.strictObject({
      state: rolloutDeviceState.optional().describe('Only devices in this state'),
      wave: queryNumber(z.int().min(1, 'must be at least 1').max(maxWaves, `must be at most ${maxWaves}`))
        .optional()
        .describe('Only devices of this wave, from 1'),
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(RolloutDevice),
  }),
  halt: move('halt', 'halt', 'Stop offering the version to further devices until the rollout is resumed'),
  resume: move('resume', 'resume', 'Resume a halted rollout; failures so far are accepted'),
  abort: move('abort', 'abort', 'End a rollout; devices that it has updated stay on the version'),
  rollBack: move('roll-back', 'roll_back', 'End a rollout, and return its devices to the promoted version'),
}
