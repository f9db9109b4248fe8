import { record } from '../../audit/outbox.ts'
import { draftOf, type Happening } from '../../audit/rules.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Outcome, Parcel } from '../deliveries/rules.ts'
import type { Held } from '../rules.ts'
import * as store from './store.ts'

/** A delivery that was on its way, and what came of it. */
export type Attempt = { webhook: Held; parcel: Parcel; outcome: Outcome }

/** Puts down what came of attempts, counts them, and fails the webhooks of those who want no more. */
export async function putDown(tx: Db, attempts: readonly Attempt[], now: Instant): Promise<void> {
  const unwanted = attempts.filter(({ outcome }) => outcome.isUnwanted).map(({ webhook }) => webhook)
  for (const webhook of new Map(unwanted.map((one) => [one.id, one])).values()) {
    if (await store.failWebhook(tx, webhook.id, now)) await record(tx, draftOf(wantsNoMore(webhook), now))
  }
  const counting = await store.putDown(
    tx,
    byId(attempts, ({ parcel }) => parcel.id),
    now,
  )
  const tallies = tallied(
    attempts.filter(({ parcel }) => counting.has(parcel.id)),
    now,
  )
  await store.count(
    tx,
    byId(tallies, ({ webhookId }) => webhookId),
  )
}

function tallied(attempts: readonly Attempt[], now: Instant): store.Tally[] {
  const tallies = new Map<string, store.Tally>()
  for (const { parcel, outcome } of attempts) {
    const { webhookId } = parcel
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

/** In the order in which everyone takes hold of rows, so that nobody waits for somebody who waits for them. */
const byId = <T>(all: readonly T[], idOf: (one: T) => string): T[] =>
  [...all].sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1))

const wantsNoMore = (webhook: Held): Happening => ({
  orgId: webhook.orgId,
  actorType: 'system',
  actorId: null,
  actorEmail: null,
  action: 'webhook.fail',
  resourceType: 'webhook',
  resourceId: webhook.id,
  resourceName: webhook.name,
  details: { reason: 'The receiver answered 410 Gone' },
  ipAddress: null,
  userAgent: null,
  result: 'success',
})
