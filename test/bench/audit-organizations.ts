import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { genesisChecksum } from '../../src/audit/chain.ts'
import { linkEntries } from '../../src/audit/outbox.ts'
import { newId } from '../../src/core/new-id.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { makeOrg } from '../../src/tenancy/organizations/rules.ts'
import { insertOrg } from '../../src/tenancy/store.ts'
import type { AuditOptions } from './audit.ts'
import { draft } from './audit-sealing.ts'
import { fromHere, removeFolder, stop, temporaryFolder } from './children.ts'
import { atMost, type Row } from './figures.ts'
import { buildFleet } from './fleet-world.ts'
import { cpuOf, longestStall, startService } from './servers.ts'
import { orgDefaults, type Place } from './world.ts'

const entriesEach = 20
const batch = 200
/** Each chain is to be verified daily: what takes longer than an hour leaves no room for growth. */
const maxSeconds = 3600

/** How soon a service has signed and verified the chains of ten thousand organizations that nobody has verified yet. */
export async function auditOrganizations(
  { quick, newDatabase }: AuditOptions,
  say: (line: string) => void,
): Promise<Row[]> {
  const count = quick ? 1000 : 10_000
  const rows: Row[] = []
  for (const kind of ['SQLite', 'Postgres'] as const) {
    const dataDir = temporaryFolder('audit')
    const place: Place = kind === 'Postgres' ? { dataDir, databaseUrl: await newDatabase() } : { dataDir }
    const fleet = await buildFleet(place, 200, () => {})
    const storage = await openStorage(place)
    for (let from = 0; from < count; from += batch) {
      if (from % 2000 === 0) say(`audit: ${from} of ${count} organizations on ${kind}`)
      await storage.write((tx) => addOrganizations(tx, fleet.partnerId, from))
    }
    const stalls = join(dataDir, 'stalls')
    const nodeFlags = ['--import', fromHere('./stalls.ts')]
    const server = await startService('svc', place, { nodeFlags, env: { STALLS_FILE: stalls } })
    await longestStall(server, stalls)
    const from = performance.now()
    const signed = async () => (await countChains(storage.read, 'audit_checkpoints')) >= count
    const verified = async () => (await countChains(storage.read, 'audit_verdicts')) >= count
    const signedSeconds = await until(signed, from)
    const verifiedSeconds = await until(verified, from)
    rows.push({
      bench: 'audit',
      subject: `${count.toLocaleString('en-US')} organizations signed and verified, ${kind}`,
      ...atMost(verifiedSeconds, maxSeconds, ' s'),
      figures: {
        'signed after s': signedSeconds,
        'verified after s': verifiedSeconds,
        'cpu s': (cpuOf(server.child) ?? Number.NaN) / 1e6,
        'stall ms': await longestStall(server, stalls),
      },
    })
    await stop(server.child)
    await storage.close()
    removeFolder(dataDir)
  }
  return rows
}

async function until(isDone: () => Promise<boolean>, from: number): Promise<number> {
  while (!(await isDone())) {
    if (performance.now() - from > maxSeconds * 1000) return Number.POSITIVE_INFINITY
    await sleep(1000)
  }
  return (performance.now() - from) / 1000
}

async function countChains(db: Db, table: 'audit_checkpoints' | 'audit_verdicts'): Promise<number> {
  const { chains } = await db
    .selectFrom(table)
    .select((eb) => eb.fn.count<number | string>('chain').distinct().as('chains'))
    .executeTakeFirstOrThrow()
  return Number(chains)
}

async function addOrganizations(tx: Db, partnerId: string, from: number): Promise<void> {
  const now = new Date().toISOString()
  for (let n = from; n < from + batch; n++) {
    const named = { name: `Customer ${n}`, slug: `customer-${n}`, ...orgDefaults }
    const org = makeOrg(named, partnerId, { id: newId(), now })
    await insertOrg(tx, org)
    const { id } = org
    const drafts = Array.from({ length: entriesEach }, (_, k) => draft(id, k + 1, now))
    const entries = linkEntries(id, { seq: 0, checksum: genesisChecksum }, drafts)
    await tx.insertInto('audit_logs').values(entries).execute()
    const { seq, checksum } = entries.at(-1)!
    await tx.insertInto('audit_heads').values({ chain: id, seq, checksum }).execute()
  }
}
