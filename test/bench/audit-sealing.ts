import { setTimeout as sleep } from 'node:timers/promises'
import { migrations } from '../../migrations/index.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { type DraftEntry, toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { openStorage } from '../../src/storage/open.ts'
import type { AuditOptions } from './audit.ts'
import { removeFolder, temporaryFolder } from './children.ts'
import { atMost, quantile, type Row } from './figures.ts'

const writers = 64

/** A change of a member of an organization, as the pipeline records it. */
export const draft = (orgId: string, n: number, at: string): DraftEntry =>
  toDraftEntry(
    {
      orgId,
      actorType: 'user',
      actorId: orgId,
      actorEmail: `person-${n % 50}@example.com`,
      action: n % 1000 === 0 ? 'user.role.assign' : n % 3 === 0 ? 'enrollment_key.rotate' : 'device.update',
      resourceType: 'device',
      resourceId: newId(),
      resourceName: `reception-${n % 5000}`,
      details: { before: { displayName: null, n }, after: { displayName: 'Front desk', n: n + 1 } },
      ipAddress: '203.0.113.7',
      userAgent: 'svc/0.1.0 (linux; x64) node-v26',
      result: 'success',
    },
    at,
  )

/** How soon an entry has its place in the chain, and what that costs. */
export async function auditSealing(options: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  return [...(await lag(options, say)), ...(await cost(options, say))]
}

/**
 * How long after its change an entry has its place, while 64 people make one change after the other. That is so on
 * Postgres only: on SQLite a change is sealed with its transaction.
 */
async function lag({ quick, newDatabase }: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  const dataDir = temporaryFolder('sealing')
  const storage = await openStorage({ dataDir, databaseUrl: await newDatabase() })
  await migrate(storage, migrations)
  const orgId = newId()
  say('audit: 64 writers')

  /** When the n-th change was made: it has the n-th place, or one close by. */
  const made: number[] = []
  const lags: number[] = []
  let writing = true
  // As the service does: one run at a time, while there is something.
  const sealer = (async () => {
    while (writing) {
      await sealPending(storage)
      await sleep(1)
    }
    await sealPending(storage)
  })()
  const heads = storage.read.selectFrom('audit_heads').select('seq').where('chain', '=', orgId)
  const look = async () => {
    const [head] = await heads.execute()
    const seen = performance.now()
    for (let n = lags.length; n < Math.min(head?.seq ?? 0, made.length); n++) lags.push(seen - made[n]!)
  }
  const watch = (async () => {
    while (writing) {
      await look()
      await sleep(2)
    }
  })()
  const begin = performance.now()
  const end = begin + (quick ? 2000 : 8000)
  const write = async (writer: number) => {
    for (let n = writer; performance.now() < end; n += writers) {
      await storage.write((tx) => recordAudit(tx, draft(orgId, n, now())))
      made.push(performance.now())
    }
  }
  await Promise.all(Array.from({ length: writers }, (_, n) => write(n)))
  const seconds = (performance.now() - begin) / 1000
  writing = false
  await watch
  await sealer
  await look()
  await storage.close()
  removeFolder(dataDir)
  const sorted = Float64Array.from(lags).sort()
  const p99 = quantile(sorted, 0.99)
  return [
    {
      bench: 'audit',
      subject: 'sealing lag under 64 writers, Postgres',
      ...atMost(p99, 250, ' ms p99'),
      figures: {
        'p50 ms': quantile(sorted, 0.5),
        'p99 ms': p99,
        'changes/s': made.length / seconds,
        entries: sorted.length,
      },
    },
  ]
}

const now = () => new Date().toISOString()

/** What an entry costs a change, with nothing else going on. */
async function cost({ quick }: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  const dataDir = temporaryFolder('sealing')
  const storage = await openStorage({ dataDir })
  await migrate(storage, migrations)
  const orgId = newId()
  say('audit: sealing by itself')
  const entries = quick ? 2000 : 20_000
  const cpu = process.cpuUsage()
  for (let from = 0; from < entries; from += 500) {
    await storage.write(async (tx) => {
      for (let n = 0; n < 500; n++) await recordAudit(tx, draft(orgId, from + n, now()))
    })
  }
  const { user, system } = process.cpuUsage(cpu)
  await storage.close()
  removeFolder(dataDir)
  const each = (user + system) / entries
  return [
    {
      bench: 'audit',
      subject: 'an entry by itself, SQLite',
      ...atMost(each, 150, ' µs cpu'),
      figures: { 'cpu µs/entry': each, entries },
    },
  ]
}
