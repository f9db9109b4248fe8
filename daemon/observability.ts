import type { Cipher } from '../src/core/cipher.ts'
import { classifyDatabaseError } from '../src/storage/dialect.ts'
import type { Readiness } from './app.ts'
import { bounded } from './bounded.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { missingKeys } from './key-fingerprints.ts'
import type { Metric, Metrics } from './metrics.ts'
import { RequestWatch } from './request-watch.ts'

/* What those who watch the service are told of all its parts. */

/** Milliseconds that a scrape or a check of readiness waits for what needs the database. */
const deadlineMs = 3000

export function metricsOf(parts: Dependencies, token: string): Metrics {
  const {
    audit,
    bodies,
    replies,
    work,
    connections,
    webhooks,
    database,
    integrity,
    signIns,
    setAside,
    logs,
    outputs,
    questions,
  } = parts
  const { storage, clock, cipher } = parts
  const requests = new RequestWatch()
  const stored = [
    () => signIns.metrics(storage.read, clock()),
    () => audit.metrics(),
    () => setAside.metrics(),
  ].map((read) => bounded(read, deadlineMs, failureLog(parts)))
  return {
    token,
    onRequest: (name, status, milliseconds) => requests.add(name, status, milliseconds),
    read: async () => {
      const found = await Promise.all(stored.map((read) => read()))
      return [
        ...requests.metrics(),
        ...bodies.metrics(),
        ...replies.metrics(),
        ...work.metrics(),
        ...connections.metrics(),
        ...webhooks.metrics(),
        ...database.metrics(),
        ...integrity.metrics(),
        damage(parts),
        ...questions.metrics(),
        ...logs.metrics(),
        ...outputs.metrics(),
        ...parts.agentEntries.metrics(),
        ...parts.agentEvents.metrics(),
        unreadableValues(cipher),
        ...found.flatMap((metrics) => metrics ?? []),
        lackingMetrics(found.filter((metrics) => metrics === undefined).length),
      ]
    },
  }
}

/** A database that is away is counted and logged once a minute; any other failure is a bug. */
const failureLog =
  ({ database, log }: Dependencies) =>
  (error: unknown): void => {
    if (classifyDatabaseError(error) !== undefined) database.note(error)
    else log.error({ err: error }, 'a metric or a check of readiness could not be read')
  }

const isDamaged = ({ database, integrity }: Dependencies): boolean =>
  database.isDamaged || integrity.isDamaged

const damage = (parts: Dependencies): Metric => ({
  name: 'svc_database_damaged',
  kind: 'gauge',
  help: '1 once this process knows that what the database stores is not what it wrote.',
  values: [{ value: Number(isDamaged(parts)) }],
})

const lackingMetrics = (value: number): Metric => ({
  name: 'svc_metrics_lacking',
  kind: 'gauge',
  help: 'Groups of metrics that are left out, because the database did not answer for them in time.',
  values: [{ value }],
})

const unreadableValues = ({ unreadable }: Cipher): Metric => ({
  name: 'svc_unreadable_values_total',
  kind: 'counter',
  help: 'Encrypted values that were read and do not open with the keys of this process, by where they are.',
  values: [...unreadable].map(([column, value]) => ({ labels: { column }, value })),
})

export function readinessOf(parts: Dependencies, config: Config): Readiness {
  const { storage, database, audit, setAside } = parts
  const checkChains = bounded(() => audit.check(), deadlineMs, failureLog(parts))
  const checkAside = bounded(() => setAside.check().then((said) => ({ said })), deadlineMs, failureLog(parts))
  const findMissingKeys = bounded(() => missingKeys(storage.read, config), deadlineMs, failureLog(parts))
  return async () => {
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
      // Someone has to look after pages and chains that are damaged; the service does its work all the same.
      checks: {
        database: isDamaged(parts) ? 'damaged: restore it from a backup' : 'ok',
        audit: chains ?? 'cannot be read',
        ...(setAsideSaid !== undefined && { setAside: setAsideSaid }),
        ...(missing && missing.length > 0 && { keys: `changed elsewhere: ${missing.join(', ')}` }),
      },
    }
  }
}
