import { genesisChecksum } from '../../src/audit/chain.ts'
import { linkEntries } from '../../src/audit/outbox.ts'
import { openStorage } from '../../src/storage/open.ts'
import type { AuditOptions } from './audit.ts'
import { draft } from './audit-sealing.ts'
import { removeFolder, stop, temporaryFolder } from './children.ts'
import { atMost, type Row } from './figures.ts'
import { buildFleet, type Fleet } from './fleet-world.ts'
import { type Loader, startLoader } from './loader.ts'
import { type Server, startService } from './servers.ts'

const patience = 50
const batch = 2000
const begin = Date.parse('2025-01-01T00:00:00Z')

/** Lists of the audit log when it is long: one organization's, and the same through the eyes of the system. */
export async function auditLists({ quick }: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  const load = startLoader()
  const rows: Row[] = []
  for (const size of quick ? [1_000_000] : [1_000_000, 10_000_000]) {
    const dataDir = temporaryFolder('audit')
    const fleet = await buildFleet({ dataDir }, 1000, () => {})
    await fill(dataDir, fleet.orgId, size, say)
    const server = await startService('svc', { dataDir }, { env: { OFFLINE_AFTER_SECONDS: '86400' } })
    rows.push(...(await ask(server, fleet, load, { size, milliseconds: quick ? 1000 : 3000 })))
    await stop(server.child)
    removeFolder(dataDir)
  }
  return rows
}

async function fill(
  dataDir: string,
  orgId: string,
  size: number,
  say: (line: string) => void,
): Promise<void> {
  const storage = await openStorage({ dataDir })
  let head = { seq: 0, checksum: genesisChecksum }
  for (let from = 0; from < size; from += batch) {
    if (from % 500_000 === 0)
      say(`audit: ${from.toLocaleString('en-US')} of ${size.toLocaleString('en-US')} entries`)
    const drafts = Array.from({ length: batch }, (_, n) =>
      draft(orgId, from + n + 1, new Date(begin + (from + n + 1) * 1000).toISOString()),
    )
    const rows = linkEntries(orgId, head, drafts)
    const { seq, checksum } = rows.at(-1)!
    head = { seq, checksum }
    const insert = async () =>
      storage.write(
        async (tx) => {
          for (let at = 0; at < rows.length; at += 500) {
            await tx
              .insertInto('audit_logs')
              .values(rows.slice(at, at + 500))
              .execute()
          }
        },
        { unsynced: true },
      )
    await insert()
  }
  const row = { chain: orgId, ...head }
  await storage.write((tx) => tx.insertInto('audit_heads').values(row).execute())
  await storage.close()
}

type Asking = { size: number; milliseconds: number }

async function ask(server: Server, { orgId, tokens }: Fleet, load: Loader, asking: Asking): Promise<Row[]> {
  const path = '/audit-logs/logs'
  const headers = (token: string) => ({ authorization: `Bearer ${token}` })
  /** The cursor of the page before the thousandth. */
  const cursor = async (token: string): Promise<string> => {
    const url = `${server.url}/api/v1${path}?page=999&skipCount=true`
    const reply = (await (await fetch(url, { headers: headers(token) })).json()) as {
      pagination: { nextCursor: string }
    }
    return encodeURIComponent(reply.pagination.nextCursor)
  }
  const pages = [
    ['page 1', ''],
    ['page 1,000 by number', '?page=1000'],
    ['a common action', '?action=enrollment_key.rotate&skipCount=true'],
    ['a rare action', '?action=user.role.assign&skipCount=true'],
    ['a user', '?user=person-7@&skipCount=true'],
    ['behind a place', `?after=${asking.size - 20}&orgId=${orgId}`],
  ] as const
  const size = asking.size.toLocaleString('en-US')
  const rows: Row[] = []
  for (const who of ['organization', 'system'] as const) {
    const token = tokens[who]
    const scenarios = [...pages, ['page 1,000 by cursor', `?cursor=${await cursor(token)}`] as const]
    for (const [name, query] of scenarios) {
      const request = { method: 'GET', path: `/api/v1${path}${query}`, headers: headers(token) }
      const order = { url: server.url, requests: [request], status: 200, connections: 1 }
      const { p50 } = await load({ ...order, milliseconds: Math.round(asking.milliseconds / 3) })
      // So many that the slowest hundredth is more than one of them.
      const milliseconds = Math.max(asking.milliseconds, Math.round(p50 * 300))
      const made = await load({ ...order, milliseconds })
      rows.push({
        bench: 'audit',
        subject: `${size}: ${name}, ${who}`,
        ...atMost(made.p99, patience, ' ms p99'),
        figures: { 'p50 ms': made.p50, 'p99 ms': made.p99, asked: made.requests },
      })
    }
  }
  return rows
}
