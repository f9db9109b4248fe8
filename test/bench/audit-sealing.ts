import { migrations } from '../../migrations/index.ts'
import { record, sealPending } from '../../src/audit/outbox.ts'
import { type Draft, draftOf } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { openStorage } from '../../src/storage/open.ts'
import type { AuditOptions } from './audit.ts'
import { removeFolder, temporaryFolder } from './children.ts'
import { atMost, quantile, type Row } from './figures.ts'

const writers = 64

/** A change of a member of an organization, as the pipeline records it. */
export const draft = (orgId: string, n: number, at: string): Draft =>
  draftOf(
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

/** How long after its change an entry has its place in the chain, while 64 people make one change after the other. */
export async function auditSealing({ quick }: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  const dataDir = temporaryFolder('sealing')
  const storage = await openStorage({ dataDir })
  await migrate(storage, migrations)
  const orgId = newId()
  const now = () => new Date().toISOString()
  say('audit: 64 writers')

  let waiting: number[] = []
  const lags: number[] = []
  let sealing: Promise<void> | undefined
  let spent = 0
  const seal = async () => {
    while (waiting.length > 0) {
      const taken = waiting
      waiting = []
      const begin = performance.now()
      await sealPending(storage)
      const end = performance.now()
      spent += end - begin
      for (const at of taken) lags.push(end - at)
    }
  }
  // As the service does: woken by each commit, one run at a time.
  const wake = () => {
    sealing ??= seal().finally(() => {
      sealing = undefined
      if (waiting.length > 0) wake()
    })
  }
  const end = performance.now() + (quick ? 2000 : 8000)
  const begin = performance.now()
  const write = async (writer: number) => {
    for (let n = writer; performance.now() < end; n += writers) {
      await storage.write((tx) => record(tx, draft(orgId, n, now())))
      waiting.push(performance.now())
      wake()
    }
  }
  await Promise.all(Array.from({ length: writers }, (_, n) => write(n)))
  while (sealing) await sealing
  const seconds = (performance.now() - begin) / 1000
  const sorted = Float64Array.from(lags).sort()

  // Sealing by itself: what an entry costs the service, with nothing else going on.
  const pending = quick ? 2000 : 20_000
  for (let from = 0; from < pending; from += 500) {
    await storage.write(async (tx) => {
      for (let n = 0; n < 500; n++) await record(tx, draft(orgId, from + n, now()))
    })
  }
  const cpu = process.cpuUsage()
  await sealPending(storage)
  const { user, system } = process.cpuUsage(cpu)
  await storage.close()
  removeFolder(dataDir)
  const p99 = quantile(sorted, 0.99)
  return [
    {
      bench: 'audit',
      subject: 'sealing lag under 64 writers',
      ...atMost(p99, 250, ' ms p99'),
      figures: {
        'p50 ms': quantile(sorted, 0.5),
        'p99 ms': p99,
        'entries/s': sorted.length / seconds,
        busy: spent / 1000 / seconds,
      },
    },
    {
      bench: 'audit',
      subject: 'sealing by itself',
      ...atMost((user + system) / pending, 150, ' µs cpu'),
      figures: { 'cpu µs/entry': (user + system) / pending, entries: pending },
    },
  ]
}
