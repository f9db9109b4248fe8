import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { idOf, instant, text } from '../../core/schema.ts'
import { Plan, place, pruning } from '../contract.ts'

export const ConfigurationApply = z
  .object({
    id: idOf('configuration_apply'),
    set: z.string(),
    revision: z.string().nullable().describe('What its caller named, such as a commit'),
    appliedAt: instant,
    appliedBy: z.string().describe('Address of the person, or name of the program'),
    rollsBack: z.string().nullable().describe('The apply that it rolled back'),
    totals: z
      .object({ create: z.int(), update: z.int(), delete: z.int(), adopt: z.int(), release: z.int() })
      .describe('Of what you may see'),
    canRollBack: z.boolean().describe('Whether the values from before are still kept'),
  })
  .meta({ id: 'ConfigurationApply' })
export type ConfigurationApply = z.output<typeof ConfigurationApply>

export const Lost = z
  .object({ ...place, reason: z.string() })
  .describe('What the rollback does not bring back')
export type Lost = z.output<typeof Lost>

const RollbackPlan = Plan.extend({ lost: z.array(Lost) }).meta({ id: 'ConfigurationRollback' })
export type RollbackPlan = z.output<typeof RollbackPlan>

const tag = 'Configuration'
/** An apply may have changed what a member who sees only a part of the tenant must not see, and a plan shows its values. */
const whole = { wholePartner: true, wholeOrganization: true, key: true } as const
const reads = userAccess({ permission: 'config:read', ...whole })
const applies = userAccess({ permission: 'config:apply', ...whole })
const params = z.strictObject({ id: idOf('configuration_apply') })
const errors = ['tenant_required', 'org_access_denied'] as const

export const configurationApplies = {
  list: endpoint({
    method: 'GET',
    path: '/config/applies',
    summary: 'List what was applied, newest first: the last 100 applies that changed something',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only the configuration of this organization'),
      partnerId: idOf('partner').optional().describe('Of this partner; for system scope'),
      ...pageQuery(),
    }),
    reply: pageOf(ConfigurationApply),
    errors: [...errors, 'partner_mismatch'],
  }),
  plan: endpoint({
    method: 'POST',
    path: '/config/applies/:id/plan',
    idempotencyKey: { refused: 'reading' },
    summary: 'Say what rolling an apply back would change, and change nothing',
    tag,
    access: reads,
    params,
    body: z.strictObject(pruning).prefault({}),
    reply: RollbackPlan,
    audit: { unaudited: 'changes nothing' },
    errors: [...errors, 'conflict'],
    example: { prune: true },
  }),
  rollback: endpoint({
    method: 'POST',
    path: '/config/applies/:id/rollback',
    idempotencyKey: 'honored',
    isSnapshot: true,
    summary: 'Roll an apply back in one transaction, unless later changes stand on it',
    tag,
    access: applies,
    params,
    body: z.strictObject({
      ...pruning,
      version: text(200, 1).describe('The version of the plan'),
      plannedAt: instant
        .optional()
        .describe('When it was planned: a conflict then names what has changed since'),
      revision: text(200, 1).optional().describe('What the audit log says besides, such as a commit'),
    }),
    reply: RollbackPlan.extend({ applyId: z.guid().describe('In the details of each audit entry') }),
    audit: { action: 'config.rollback', resource: 'configuration' },
    errors: [...errors, 'conflict'],
    example: { version: '0' },
  }),
}
