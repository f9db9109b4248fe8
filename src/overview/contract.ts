import { z } from 'zod'
import { RolloutProgress } from '../agents/rollouts/contract.ts'
import { alertSeverity } from '../alerts/contract.ts'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { idOf, instant } from '../core/schema.ts'
import { deviceStatus } from '../devices/contract.ts'
import { webhookStatus } from '../webhooks/contract.ts'

const count = z.int()

/** A count under each of the names. */
const countsOf = <Name extends string>(names: readonly Name[]) =>
  z.object(Object.fromEntries(names.map((name) => [name, count])) as Record<Name, typeof count>)

export const verdicts = ['sound', 'tampered', 'unverifiable', 'pending'] as const
const overviewPart = z.enum(['devices', 'alerts', 'webhooks', 'rollout', 'audit'])
export type OverviewPart = z.output<typeof overviewPart>

/** More waiting deliveries than this are not counted. */
export const maxWaiting = 10_000

export const Overview = z
  .object({
    time: instant,
    scope: z.enum(['system', 'partner', 'organization']).describe('Scope of the caller'),
    devices: z
      .object({
        total: count.describe('Without decommissioned devices'),
        byStatus: countsOf(deviceStatus.options),
        heartbeatsPerSecond: z
          .number()
          .describe('Devices that reported in the last minute, by 60: a device reports once a minute'),
      })
      .nullable(),
    alerts: z
      .object({
        active: count,
        acknowledged: count,
        bySeverity: countsOf(alertSeverity.options).describe('Active and acknowledged ones'),
      })
      .nullable(),
    webhooks: z
      .object({
        byStatus: countsOf(webhookStatus.options),
        succeeded: count.describe('Attempts with a 2xx response, of all time'),
        failed: count.describe('Attempts without a 2xx response, of all time'),
        waiting: count.describe(`Deliveries that are still to be sent; counted up to ${maxWaiting}`),
      })
      .nullable(),
    rollout: RolloutProgress.nullable().describe('The rollout that has not ended, if any'),
    audit: z
      .object({
        chains: count,
        entries: count.describe('Of all these chains, since each began'),
        head: z
          .object({ seq: count, checksum: z.string() })
          .nullable()
          .describe('Newest entry of your own chain; null in partner scope without orgId'),
        verdicts: countsOf(verdicts).describe(
          'Chains by the last verdict of the service; pending: being verified',
        ),
        verifiedAt: instant.nullable().describe('When the service last verified one of them'),
      })
      .nullable(),
    leftOut: z
      .array(z.object({ part: overviewPart, reason: z.string() }))
      .describe('Parts that the caller may not read: null above'),
  })
  .meta({ id: 'Overview' })
export type Overview = z.output<typeof Overview>

export const overview = {
  show: endpoint({
    method: 'GET',
    path: '/overview',
    summary: 'Show the state of a fleet in numbers: devices, alerts, webhooks, rollout and audit log',
    tag: 'Overview',
    // A part is included only for callers who may read its list.
    access: userAccess({ key: true }),
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization')
        .optional()
        .describe('Only devices, alerts, webhooks and chain of this organization'),
    }),
    reply: Overview,
    errors: ['org_access_denied'],
  }),
}
