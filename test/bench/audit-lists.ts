import { genesisChecksum } from '../../src/audit/chain.ts'
import { listEntries, listEntriesAfter } from '../../src/audit/entries.ts'
import { linkEntries } from '../../src/audit/outbox.ts'
import { organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { draft } from './audit-sealing.ts'
import { removeFolder, stop, temporaryFolder } from './children.ts'
import { atMost, type Row } from './figures.ts'
import { buildFleet, type Fleet } from './fleet-world.ts'
import type { Load } from './load.ts'
import { type Loader, startLoader } from './loader.ts'
import { plansOf } from './plans.ts'
import { residentMb, type Server, startService } from './servers.ts'
import type { Place } from './world.ts'

export type AuditListsOptions = {
  /** How many entries, one after the other. */
  sizes: readonly number[]
  milliseconds: number
  /** Also says how the database goes about it. */
  plans: boolean
  newDatabase?: () => Promise<string>
}

const patience = 50
/** Entries that one transaction adds to one chain. */
const batch = 2000
/** Retention deletes what is older than a year. */
const span = 300 * 86_400_000

/**
 * Lists of the audit log when it is long: one organization's, which has half of all entries, those of a partner of 20
 * organizations, and those of the whole service.
 */
export async function auditLists(options: AuditListsOptions, say: (line: string) => void): Promise<Row[]> {
  const load = startLoader()
  const rows: Row[] = []
  for (const size of options.sizes) {
    const dataDir = temporaryFolder('audit')
    const place: Place = options.newDatabase
      ? { dataDir, databaseUrl: await options.newDatabase() }
      : { dataDir }
    const fleet = await buildFleet(place, 1000, () => {})
    const longest = await fill(place, fleet, size, say)
    const server = await startService('svc', place, { env: { OFFLINE_AFTER_SECONDS: '86400' } })
    rows.push(...(await ask(server, fleet, load, { ...options, size, longest })))
    await stop(server.child)
    if (options.plans)
      process.stderr.write(`${(await plansOf(place, questionsOf(fleet, longest))).join('\n')}\n`)
    removeFolder(dataDir)
  }
  return rows
}

/** Every second batch is of the first organization; returns how many entries that has. */
async function fill(
  place: Place,
  { orgIds }: Fleet,
  size: number,
  say: (line: string) => void,
): Promise<number> {
  const storage = await openStorage(place)
  const begin = Date.now() - span
  const heads = new Map<string, { seq: number; checksum: string }>()
  for (let from = 0; from < size; from += batch) {
    if (from % 500_000 === 0)
      say(`audit: ${from.toLocaleString('en-US')} of ${size.toLocaleString('en-US')} entries`)
    const turn = from / batch
    const orgId = turn % 2 === 0 ? orgIds[0]! : orgIds[1 + ((turn >> 1) % (orgIds.length - 1))]!
    const drafts = Array.from({ length: batch }, (_, n) =>
      draft(orgId, from + n + 1, new Date(begin + ((from + n + 1) / size) * span).toISOString()),
    )
    const rows = linkEntries(orgId, heads.get(orgId) ?? { seq: 0, checksum: genesisChecksum }, drafts)
    const { seq, checksum } = rows.at(-1)!
    heads.set(orgId, { seq, checksum })
    await storage.write(
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
  }
  await storage.write(async (tx) => {
    for (const [chain, head] of heads)
      await tx
        .insertInto('audit_heads')
        .values({ chain, ...head })
        .execute()
  })
  await storage.close()
  return heads.get(orgIds[0]!)!.seq
}

const commonAction = 'enrollment_key.rotate'
const rareAction = 'user.role.assign'

/** The lists of which the plan is shown: the same as `ask` makes. */
const questionsOf =
  ({ orgId, partnerId }: Fleet, longest: number) =>
  (db: Db): Record<string, () => Promise<unknown>> => {
    const page = { page: 1, limit: 50, skipCount: true }
    const partner: Scope = { kind: 'partner', partnerId, orgs: 'all' }
    return {
      'organization, page 1': () => listEntries(db, organizationScope(orgId), page),
      'organization, a rare action': () =>
        listEntries(db, organizationScope(orgId), { ...page, action: rareAction }),
      'organization, behind a place': () =>
        listEntriesAfter(db, organizationScope(orgId), orgId, { ...page, after: longest - 20 }),
      'partner, page 1': () => listEntries(db, partner, page),
      'partner, a rare action': () => listEntries(db, partner, { ...page, action: rareAction }),
      'system, page 1': () => listEntries(db, systemScope, page),
      'system, a rare action': () => listEntries(db, systemScope, { ...page, action: rareAction }),
    }
  }

type Asking = Pick<AuditListsOptions, 'milliseconds'> & { size: number; longest: number }

async function ask(
  server: Server,
  { orgId, newTokens }: Fleet,
  load: Loader,
  asking: Asking,
): Promise<Row[]> {
  const path = '/audit-logs/logs'
  const headers = (token: string) => ({ authorization: `Bearer ${token}` })
  /** The cursor of the page before the thousandth; undefined where that is refused, as it takes too long by number. */
  const cursor = async (token: string): Promise<string | undefined> => {
    const url = `${server.url}/api/v1${path}?page=999&skipCount=true`
    const response = await fetch(url, { headers: headers(token) })
    const reply = (await response.json()) as { pagination?: { nextCursor: string } }
    return reply.pagination && encodeURIComponent(reply.pagination.nextCursor)
  }
  const pages = [
    ['page 1', ''],
    ['page 1 without the total', '?skipCount=true'],
    ['page 1,000 by number', '?page=1000&skipCount=true'],
    ['a common action', `?action=${commonAction}&skipCount=true`],
    ['a rare action', `?action=${rareAction}&skipCount=true`],
    ['a user', '?user=person-7@&skipCount=true'],
    ['behind a place', `?after=${asking.longest - 20}&orgId=${orgId}`],
  ] as const
  const size = asking.size.toLocaleString('en-US')
  const rows: Row[] = []
  for (const who of ['organization', 'partner', 'system'] as const) {
    // To fill in has taken longer than a token is good for.
    const token = (await newTokens())[who]
    const at = await cursor(token)
    const byCursor = at === undefined ? [] : [['page 1,000 by cursor', `?cursor=${at}`] as const]
    const scenarios = [...pages, ...byCursor]
    for (const [name, query] of scenarios) {
      const request = { method: 'GET', path: `/api/v1${path}${query}`, headers: headers(token) }
      const order = { url: server.url, requests: [request], status: 200, connections: 1 }
      const subject = `${size}: ${name}, ${who}`
      const made = await measured(load, order, asking.milliseconds)
      if (made) {
        const figures = { 'p50 ms': made.p50, 'p99 ms': made.p99, asked: made.requests }
        rows.push({ bench: 'audit-lists', subject, ...atMost(made.p99, patience, ' ms p99'), figures })
      } else {
        rows.push({ bench: 'audit-lists', subject, aim: 'an answer', met: false, figures: {} })
      }
    }
  }
  const memory = residentMb(server.child, 'VmHWM')
  if (memory !== undefined) {
    rows.push({ bench: 'audit-lists', subject: `${size}: memory`, figures: { 'MB at most': memory } })
  }
  return rows
}

/** undefined: it is refused, such as after QUESTION_TIMEOUT_MS. */
async function measured(
  load: Loader,
  order: Omit<Parameters<Loader>[0], 'milliseconds'>,
  leastMs: number,
): Promise<Load | undefined> {
  try {
    const { p50 } = await load({ ...order, milliseconds: Math.round(leastMs / 3) })
    // So many that the slowest hundredth is more than one of them, within a minute.
    return await load({ ...order, milliseconds: Math.min(Math.max(leastMs, Math.round(p50 * 300)), 60_000) })
  } catch (error) {
    process.stderr.write(`${String(error).slice(0, 200)}\n`)
    return undefined
  }
}
