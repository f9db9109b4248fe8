import { recordAudit } from '../../audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { DeliveryOutcome, PendingDelivery } from '../deliveries/rules.ts'
import type { WebhookRecord } from '../rules.ts'
import * as store from './store.ts'

/** An attempt to send a delivery, and its outcome. */
export type DeliveryAttempt = { webhook: WebhookRecord; delivery: PendingDelivery; outcome: DeliveryOutcome }

/** Records the outcomes of attempts, counts them, and fails webhooks whose receiver wants no more deliveries. */
export async function recordOutcomes(
  tx: Db,
  attempts: readonly DeliveryAttempt[],
  now: Instant,
): Promise<void> {
  const unwanted = attempts.filter(({ outcome }) => outcome.isUnwanted).map(({ webhook }) => webhook)
  for (const webhook of new Map(unwanted.map((one) => [one.id, one])).values()) {
    if (await store.failWebhook(tx, webhook.id, now))
      await recordAudit(tx, toDraftEntry(webhookFailure(webhook), now))
  }
  const counting = await store.updateDeliveries(
    tx,
    byId(attempts, ({ delivery }) => delivery.id),
    now,
  )
  const tallies = countOutcomes(
    attempts.filter(({ delivery }) => counting.has(delivery.id)),
    now,
  )
  await store.addCounts(
    tx,
    byId(tallies, ({ webhookId }) => webhookId),
  )
}

function countOutcomes(attempts: readonly DeliveryAttempt[], now: Instant): store.OutcomeCounts[] {
  const tallies = new Map<string, store.OutcomeCounts>()
  for (const { delivery, outcome } of attempts) {
    const { webhookId } = delivery
    const { deliveredAt } = outcome
    const none = { webhookId, successes: 0, failures: 0, at: now, lastSuccessAt: null }
    const tally = tallies.get(webhookId) ?? none
    tallies.set(webhookId, {
      ...tally,
      ...(deliveredAt === null
        ? { at: now, failures: tally.failures + 1 }
        : { at: deliveredAt, lastSuccessAt: deliveredAt, successes: tally.successes + 1 }),
    })
  }
  return [...tallies.values()]
}

/** Sorts by id, the order in which every transaction locks such rows, so that none deadlock. */
const byId = <T>(all: readonly T[], idOf: (one: T) => string): T[] =>
  [...all].sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1))

const webhookFailure = (webhook: WebhookRecord): AuditEvent => ({
  orgId: webhook.orgId,
  actorType: 'system',
  actorId: null,
  actorEmail: null,
  action: 'webhook.fail',
  resourceType: 'webhook',
  resourceId: webhook.id,
  resourceName: webhook.name,
  details: {
    reason: 'The receiver answered 410 Gone',
    before: { status: 'active' },
    after: { status: 'failed' },
  },
  ipAddress: null,
  userAgent: null,
  result: 'success',
})
