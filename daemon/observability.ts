import type { Cipher } from '../src/core/cipher.ts'
import type { Readiness } from './app.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { missingKeys } from './key-fingerprints.ts'
import type { Metric, Metrics } from './metrics.ts'
import { RequestWatch } from './request-watch.ts'

/* What those who watch the service are told of all its parts. */

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
  return {
    token,
    onRequest: (name, status, milliseconds) => requests.add(name, status, milliseconds),
    read: async () => [
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
      ...(await signIns.metrics(storage.read, clock())),
      ...logs.metrics(),
      ...outputs.metrics(),
      ...parts.agentEntries.metrics(),
      ...parts.agentEvents.metrics(),
      unreadableValues(cipher),
      ...(await audit.metrics()),
      ...(await setAside.metrics()),
    ],
  }
}

const isDamaged = ({ database, integrity }: Dependencies): boolean =>
  database.isDamaged || integrity.isDamaged

const damage = (parts: Dependencies): Metric => ({
  name: 'svc_database_damaged',
  kind: 'gauge',
  help: '1 once this process knows that what the database stores is not what it wrote.',
  values: [{ value: Number(isDamaged(parts)) }],
})

const unreadableValues = ({ unreadable }: Cipher): Metric => ({
  name: 'svc_unreadable_values_total',
  kind: 'counter',
  help: 'Encrypted values that were read and do not open with the keys of this process, by where they are.',
  values: [...unreadable].map(([column, value]) => ({ labels: { column }, value })),
})

export async function readinessOf(parts: Dependencies, config: Config): ReturnType<Readiness> {
  const { storage, database, audit, setAside } = parts
  const fault = await database.fault()
  if (fault !== undefined) return { ready: false, checks: { database: `error: ${fault}` } }
  // Someone has to look after pages and chains that are damaged; the service does its work all the same.
  const chains = await audit.check().catch((error: unknown) => {
    database.note(error)
    return 'cannot be read'
  })
  const aside = await setAside.check()
  const lacking = await missingKeys(storage.read, config).catch(() => [])
  const checks = { database: isDamaged(parts) ? 'damaged: restore it from a backup' : 'ok', audit: chains }
  return {
    ready: true,
    checks: {
      ...checks,
      ...(aside !== undefined && { setAside: aside }),
      ...(lacking.length > 0 && { keys: `changed elsewhere: ${lacking.join(', ')}` }),
    },
  }
}
