import { api } from '../../src/api.ts'
import { genesisChecksum } from '../../src/audit/chain.ts'
import { linkEntries } from '../../src/audit/outbox.ts'
import type { DraftEntry } from '../../src/audit/rules.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import { createClient } from '../../src/core/client.ts'
import { newId } from '../../src/core/new-id.ts'
import { openStorage } from '../../src/storage/open.ts'
import { stop, temporaryFolder } from './children.ts'
import { type Row, rounded } from './figures.ts'
import { scenariosOf } from './http.ts'
import type { Load } from './load.ts'
import { startLoader } from './loader.ts'
import { startService } from './servers.ts'
import { buildWorld, type Place } from './world.ts'

export type RetentionOptions = {
  entries: number
  connections: number
  milliseconds: number
  newDatabase?: () => Promise<string>
}

/** What deleting the beginning of a long chain costs those who mint keys meanwhile. */
export async function retention(options: RetentionOptions, say: (line: string) => void): Promise<Row[]> {
  const { entries, connections, milliseconds, newDatabase } = options
  const place: Place = {
    dataDir: temporaryFolder('retention'),
    ...(newDatabase && { databaseUrl: await newDatabase() }),
  }
  const world = await buildWorld(place)
  say(`retention: writing ${entries} old entries`)
  await fill(place, world.orgId, entries)
  const server = await startService('svc', place, { env: { AUDIT_RETENTION_ENABLED: 'false' } })
  const credentials = { headers: async () => ({ authorization: `Bearer ${world.tokens.partnerAdmin}` }) }
  const client = createClient({ url: server.url, retries: 0, headers: {}, credentials })
  const query = { orgId: world.orgId }
  const verify = async (): Promise<string> => {
    const verifier = new ChainVerifier()
    for await (const chunk of client.stream(api.auditLogs.chain, { query })) verifier.push(chunk)
    return verifier.end().verdict
  }
  const mint = scenariosOf(world).find(({ name }) => name === 'mint key')!
  const loader = startLoader()
  const load = () =>
    loader({ url: server.url, requests: mint.requests, status: 201, connections, milliseconds })

  const verdicts = [await verify()]
  say('retention: minting, without and with pruning')
  await load()
  const quiet = [await load()]
  const begin = performance.now()
  let done = false
  let pruned = 0
  /** Verifications that have begun; they are measured apart from what deleting costs. */
  let begun = 0
  let verifying = false
  const pruning = (async () => {
    for (;;) {
      const reply = await client.call(api.auditRetention.run, { query })
      pruned += reply.pruned
      if (pruned >= entries / 2 && verdicts.length === 1) {
        begun += 1
        verifying = true
        verdicts.push(await verify())
        verifying = false
      }
      if (reply.state === 'done') break
      if (reply.state !== 'more' && reply.state !== 'read') throw new Error(`pruning: ${reply.state}`)
    }
    done = true
  })()
  const busy: Load[] = []
  const besideVerifying: Load[] = []
  while (!done && busy.length < 1000) {
    const before = verifying ? -1 : begun
    const one = await Promise.race([load(), failed(pruning)])
    ;(before === begun ? busy : besideVerifying).push(one)
  }
  await pruning
  const seconds = (performance.now() - begin) / 1000
  verdicts.push(await verify())
  // For as long as there was pruning: the longest of many requests is longer than that of few.
  while (quiet.length < Math.min(busy.length, 60)) quiet.push(await load())
  await stop(server.child)

  const worst = (loads: Load[], of: 'max' | 'p99') => Math.max(...loads.map((one) => one[of]))
  const max = worst(busy, 'max')
  const rate = (loads: Load[]) =>
    loads.reduce((sum, one) => sum + one.requests, 0) / loads.reduce((sum, one) => sum + one.seconds, 0)
  return [
    {
      bench: 'retention',
      subject: `mint keys while ${pruned} entries are deleted`,
      figures: {
        'max ms': max,
        'p99 ms': worst(busy, 'p99'),
        'mints/s': rate(busy),
        'max ms beside a verification': worst(besideVerifying, 'max'),
        'quiet max ms': worst(quiet, 'max'),
        'quiet p99 ms': worst(quiet, 'p99'),
        'quiet mints/s': rate(quiet),
        'entries/s': pruned / seconds,
      },
      aim: 'max ≤ 100 ms, or that without pruning',
      met: max <= Math.max(100, worst(quiet, 'max')),
    },
    {
      bench: 'retention',
      subject: 'the chain before, during and after',
      figures: { verdicts: verdicts.join(', '), 'minutes in all': rounded(seconds / 60) },
      aim: 'sound each time',
      met: verdicts.length === 3 && verdicts.every((one) => one === 'sound'),
    },
  ]
}

/** Only ever fails. */
const failed = (work: Promise<unknown>): Promise<never> =>
  new Promise((_, reject) => {
    work.catch(reject)
  })

/** Entries of two years ago, as the service would have sealed them. */
async function fill(place: Place, orgId: string, entries: number): Promise<void> {
  const storage = await openStorage(place)
  const start = Date.now() - 730 * 86_400_000
  let head = { seq: 0, checksum: genesisChecksum }
  try {
    while (head.seq < entries) {
      const drafts = Array.from({ length: Math.min(1000, entries - head.seq) }, (_, n) =>
        draftAt(orgId, head.seq + n, new Date(start + (head.seq + n) * 10).toISOString()),
      )
      const rows = linkEntries(orgId, head, drafts)
      const { seq, checksum } = rows.at(-1)!
      head = { seq, checksum }
      await storage.write((tx) => tx.insertInto('audit_logs').values(rows).execute(), { unsynced: true })
    }
    await storage.write((tx) =>
      tx
        .insertInto('audit_heads')
        .values({ chain: orgId, ...head })
        .execute(),
    )
  } finally {
    await storage.close()
  }
}

const actors = Array.from({ length: 50 }, () => newId())

const draftAt = (orgId: string, n: number, timestamp: string): DraftEntry => ({
  id: newId(),
  orgId,
  timestamp,
  actorType: 'user',
  actorId: actors[n % actors.length]!,
  actorEmail: `person-${n % actors.length}@example.com`,
  action: 'enrollment_key.rotate',
  resourceType: 'enrollment_key',
  resourceId: newId(),
  resourceName: `Reception – laptops ${n}`,
  details: { before: { usageCount: n % 7 }, after: { usageCount: 0, maxUsage: 10 } },
  ipAddress: '203.0.113.7',
  userAgent: 'svc/0.1.0 (linux; x64) node-v26',
  result: 'success',
  errorMessage: null,
})
