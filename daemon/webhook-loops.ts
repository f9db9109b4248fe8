import { forEachSettled } from '../src/storage/bisect-writes.ts'
import { deleteOldDeliveries } from '../src/webhooks/jobs.ts'
import { DeliveryWorker } from '../src/webhooks/worker/delivery-worker.ts'
import { fanOut } from '../src/webhooks/worker/fan-out.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { loop } from './loop.ts'
import type { Loops } from './loops.ts'

/** They send deliveries, make them of events, and delete old ones. */
export function webhookLoops(loops: Loops, parts: Dependencies, config: Config): void {
  const { storage, clock } = parts
  const deliveryWorker = new DeliveryWorker({
    ...parts,
    timeoutMs: config.webhookTimeoutMs,
    wake: () => rounds.wake(),
    onAttempt: (delivery, outcome, since) => {
      parts.webhooks.add(outcome)
      parts.tracing?.attempted(delivery, outcome, since)
    },
    onOutcomeNotStored: (what) =>
      parts.log.error({ ...what, err: what.error }, 'the result of a delivery cannot be stored'),
  })
  const tell = async () => {
    const now = clock()
    const since = Date.now()
    const { webhookIds, more, failure, fannedOut } = await fanOut(storage, now)
    parts.tracing?.fannedOut(fannedOut, since)
    if (webhookIds.length > 0) deliveryWorker.notify(webhookIds, now)
    if (more) events.wake()
    if (failure !== undefined) throw failure
  }
  // With serial writes both run sequentially in one loop: larger batches cost less per row.
  const isAlone = storage.traits.serialWrites
  const both = () => forEachSettled([() => deliveryWorker.round(), tell], (work) => work())
  const round = () => (isAlone ? both() : deliveryWorker.round())
  const rounds = loop('webhooks', round, 1000, parts)
  const events = isAlone ? rounds : loop('webhook events', tell, 1000, parts)
  storage.onCommit(rounds.wake, ['webhooks', 'webhook_deliveries', 'webhook_queues'])
  storage.onCommit(events.wake, ['events'])
  rounds.wake()
  events.wake()
  const stop = async () => {
    await Promise.all([rounds.stop(), events.stop()])
    await deliveryWorker.close()
  }
  loops.add({ wake: rounds.wake, stop })
  loops.leased('webhook upkeep', (fenced) => deleteOldDeliveries(fenced, config, clock()), 600_000, {
    firstMs: parts.firstRunMs,
  })
}
