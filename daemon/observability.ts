import { Counter, Gauge, Registry } from 'prom-client'
import type { Cipher } from '../src/core/cipher.ts'
import { describeClosure } from '../src/storage/copy/write-gate.ts'
import { classifyDatabaseError } from '../src/storage/database-errors.ts'
import type { Readiness } from './app.ts'
import { watchBacklog } from './backlog-watch.ts'
import { backupMetrics } from './backup/backup-watch.ts'
import type { Config } from './config.ts'
import { withDeadline } from './deadline.ts'
import type { Dependencies } from './dependencies.ts'
import { missingKeys } from './key-fingerprints.ts'
import {
  addCounter,
  addGauge,
  type Metrics,
  metricsReader,
  observeRequests,
  type StoredMetrics,
} from './metrics.ts'
import { queueMetrics } from './queue-watch.ts'
import { watchUpkeep } from './upkeep-watch.ts'

/* Metrics and readiness of all parts of the service. */

/** Milliseconds that a check of readiness waits for what needs the database. */
const deadlineMs = 3000

export function metricsOf(parts: Dependencies, config: Config): Metrics {
  const { metrics, cipher, signIns, audit, setAside, webhooks, agentWatch, storageWatch, storage, agents } =
    parts
  const { secrets } = parts
  const damaged = {
    name: 'svc_database_damaged',
    help: '1 when this process has found the database damaged.',
  }
  addGauge(metrics, damaged, () => Number(isDamaged(parts)))
  const refused = {
    name: 'svc_writes_refused',
    help: '1 while svc db copy has closed the database to changes: they get 503, and no background work runs.',
  }
  addGauge(metrics, refused, () => Number(parts.gate.closure !== undefined))
  addUnreadableValues(metrics, cipher)
  const connected = { name: 'svc_agent_connections', help: 'Agents that are connected to this process.' }
  addGauge(metrics, connected, () => agents.links.size)
  const stored = [
    signIns.stored,
    audit.stored,
    setAside.stored,
    webhooks.stored,
    agentWatch.stored,
    storageWatch.measure(storage),
    watchUpkeep(storage),
    watchBacklog(storage, parts.clock),
    queueMetrics(parts, config),
    missingKeysMetric(parts),
    backupMetrics(storage, config.backups),
    secrets.stored,
  ]
  return {
    tokens: () => {
      const { metricsToken: current, previousMetricsToken: former } = secrets.now.config
      return current === undefined ? undefined : { current, former }
    },
    onRead: formerTokenCounter(metrics),
    onRequest: observeRequests(metrics),
    read: metricsReader(metrics, stored, failureLog(parts)),
  }
}

/** An outage of the database is counted and logged once a minute; any other failure is a bug. */
const failureLog =
  ({ database, log }: Dependencies) =>
  (error: unknown): void => {
    if (classifyDatabaseError(error) !== undefined) database.note(error)
    else log.error({ err: error }, 'a metric or a check of readiness could not be read')
  }

const isDamaged = ({ database, integrity }: Dependencies): boolean =>
  database.isDamaged || integrity.isDamaged

function addUnreadableValues(registry: Registry, { unreadable }: Cipher): void {
  const counter = new Counter({
    name: 'svc_unreadable_values_total',
    help: 'Encrypted values that were read and that no key of this process decrypts, by column.',
    labelNames: ['column'],
    registers: [registry],
    collect: () => {
      counter.reset()
      for (const [column, count] of unreadable) counter.inc({ column }, count)
    },
  })
}

function formerTokenCounter(registry: Registry): Metrics['onRead'] {
  const text = {
    name: 'svc_metrics_reads_total',
    help: 'Reads of the metrics, by the METRICS_TOKEN that was presented.',
  }
  const reads = addCounter(registry, text, 'token', ['current', 'former'])
  return (token) => reads.inc({ token })
}

function missingKeysMetric({ storage, secrets }: Dependencies): StoredMetrics {
  const registry = new Registry()
  const missing = new Gauge({
    name: 'svc_keys_changed_elsewhere',
    help: 'Keys that other processes use and this one does not have.',
    registers: [registry],
  })
  return {
    registry,
    refresh: async () => missing.set((await missingKeys(storage.read, secrets.now.config)).length),
  }
}

export function readinessOf(parts: Dependencies): Readiness {
  const { storage, gate, database, audit, setAside, secrets } = parts
  const checkChains = withDeadline(() => audit.check(), deadlineMs, failureLog(parts))
  const checkAside = withDeadline(
    () => setAside.check().then((said) => ({ said })),
    deadlineMs,
    failureLog(parts),
  )
  const findMissingKeys = withDeadline(
    () => missingKeys(storage.read, secrets.now.config),
    deadlineMs,
    failureLog(parts),
  )
  return async () => {
    const { closure } = gate
    // It still answers reads. One that was moved is replaced by the service on its new place.
    if (closure !== undefined)
      return { ready: closure.kind === 'maintenance', checks: { database: describeClosure(closure) } }
    const [fault, chains, aside, missing] = await Promise.all([
      database.fault(),
      checkChains(),
      checkAside(),
      findMissingKeys(),
    ])
    if (fault !== undefined) return { ready: false, checks: { database: `error: ${fault}` } }
    const setAsideSaid = aside ? aside.said : 'cannot be read'
    return {
      ready: true,
      // Damaged pages and chains need a person; the service stays ready.
      checks: {
        database: isDamaged(parts) ? 'damaged: restore it from a backup' : 'ok',
        audit: chains ?? 'cannot be read',
        ...(setAsideSaid !== undefined && { setAside: setAsideSaid }),
        ...(missing && missing.length > 0 && { keys: `changed elsewhere: ${missing.join(', ')}` }),
      },
    }
  }
}
