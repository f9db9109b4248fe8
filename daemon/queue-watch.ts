import { Gauge, Registry } from 'prom-client'
import { type Backlog, checkpointBacklog, verificationBacklog } from '../src/audit/checkpoints/backlog.ts'
import { retentionBacklog } from '../src/audit/retention/store.ts'
import { type Clock, type Instant, secondsBetween } from '../src/core/time.ts'
import { groupBacklog } from '../src/groups/dynamic.ts'
import type { Storage } from '../src/storage/open.ts'
import type { StoredMetrics } from './metrics.ts'

type On = { storage: Storage; clock: Clock }
type Settings = { checkpointSeconds: number; auditRetentionOn: boolean }

/** Each is a query over all organizations. */
const keepMs = 60_000

/** Work that all processes share, organization by organization: how much waits, and for how long. */
export function queueMetrics({ storage, clock }: On, settings: Settings): StoredMetrics {
  const registry = new Registry()
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers: [registry] })
  const byQueue = (name: string, help: string) =>
    new Gauge({ name, help, labelNames: ['queue'], registers: [registry] })
  const waiting = byQueue('svc_queue_backlog', 'What is due in a queue of the background work, by its loop.')
  const lag = byQueue('svc_queue_lag_seconds', 'For how long the first of it has been due; 0: nothing is.')
  const oldestVerdict = gauge(
    'svc_audit_oldest_verdict_age_seconds',
    'Age of the oldest of the last verdicts on audit chains; 0: there is no chain.',
  )
  const oldestUnsigned = gauge(
    'svc_audit_oldest_due_checkpoint_age_seconds',
    'Age of the first entry without a checkpoint, in the chains that are due to be signed; 0: none is.',
  )
  return {
    registry,
    keepMs,
    refresh: async () => {
      const now = clock()
      const ageOf = (since: Instant | null) => (since === null ? 0 : Math.max(0, secondsBetween(since, now)))
      const show = (queue: string, { count, since }: Backlog) => {
        waiting.set({ queue }, count)
        lag.set({ queue }, ageOf(since))
      }
      const { checkpointSeconds: restSeconds, auditRetentionOn } = settings
      const db = storage.heavy
      const verdicts = await verificationBacklog(db, now)
      const unsigned = await checkpointBacklog(db, { now, restSeconds })
      show('audit verification', verdicts)
      show('audit checkpoints', unsigned)
      const nothing = { count: 0, since: null }
      show('audit retention', auditRetentionOn ? await retentionBacklog(db, now) : nothing)
      show('device groups', await groupBacklog(db, now))
      oldestVerdict.set(ageOf(verdicts.oldest))
      oldestUnsigned.set(ageOf(unsigned.oldest))
    },
  }
}
