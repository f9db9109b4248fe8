import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { headerLine, trailerLine } from '../../src/audit/chain.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { orgOfChain } from '../../src/audit/rules.ts'
import { chainLines } from '../../src/audit/store.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import { ApiError } from '../../src/core/client.ts'
import { systemScope } from '../../src/core/scope.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { connectionsGone } from '../daemon/connections-gone.ts'
import { type Place, ServeProcess, serviceEnv } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, isSoak, randomFrom, seed } from '../depth.ts'
import { clientOf, serviceOn } from '../harness.ts'
import { changed, dump } from '../laws/tables.ts'
import { addPartnerUser, newToken, systemToken } from '../world.ts'

type Document = Record<string, Record<string, unknown>[]>

const hook = new URL('./killed-child.js', import.meta.url).href
/** 500 in the soak: `npm test` runs three of these files at once, and an apply has 8 seconds. */
const organizations = depth(2, 10)
const totals = { create: 31 * organizations + 10, update: 8 * organizations, delete: 10 * organizations }
const changes = totals.create + totals.update + totals.delete

const slugs = Array.from({ length: organizations }, (_, n) => `org-${n}`)

/** Four of each kind in each organization. */
const before = documentOf([0, 1, 2, 3], { timezone: 'UTC', status: 'online', content: 'true\n' })
/** Deletes, changes and makes as many as `totals` says. */
const after: Document = {
  ...documentOf([2, 3, 4, 5, 6, 7, 8, 9], {
    timezone: 'Europe/Paris',
    status: 'offline',
    content: 'false\n',
    ofPartner: 10,
  }),
  // Each has a letter, which leaves after the commit.
  memberships: slugs.map((org) => ({
    org,
    email: `new@${org}.example.com`,
    name: 'New',
    role: 'Org Viewer',
  })),
}

function documentOf(
  numbers: number[],
  {
    timezone,
    status,
    content,
    ofPartner = 0,
  }: { timezone: string; status: string; content: string; ofPartner?: number },
): Document {
  const each = (fields: object) =>
    slugs.flatMap((org) => numbers.map((n) => ({ org, name: `object ${n}`, ...fields })))
  const conditions = { operator: 'AND', conditions: [{ field: 'status', operator: 'equals', value: status }] }
  const script = { osTypes: ['linux'], language: 'bash', content }
  return {
    organizations: slugs.map((slug) => ({ slug, name: slug })),
    sites: each({ timezone }),
    roles: each({ description: timezone, permissions: ['devices:read'] }),
    filters: each({ conditions }),
    deviceGroups: each({ type: 'dynamic', filter: 'object 2' }),
    scripts: [
      ...each(script),
      ...Array.from({ length: ofPartner }, (_, n) => ({ name: `script ${n}`, ...script })),
    ],
  }
}

const ask = (document: Document) => ({ document, prune: true, pruneLimit: 20 })

/** Everything stored, how many audit entries each apply has left, and what is to be done outside. */
async function look(place: Place) {
  const storage = await openStorage(place)
  try {
    await sealPending(storage)
    const { read } = storage
    const rows = await read.selectFrom('audit_logs').select('canonical').execute()
    const applies = rows.flatMap(({ canonical }) => /"applyId":"([^"]+)"/.exec(canonical)?.[1] ?? [])
    const entries = [...Map.groupBy(applies, (id) => id).values()].map(({ length }) => length)
    const pending = await read.selectFrom('outbox').select('id').execute()
    const letters = await read.selectFrom('mails').select('id').execute()
    return {
      tables: await dump(storage),
      entries: entries.sort((one, other) => one - other),
      unsound: [...pending, ...(await unsoundChains(storage))],
      letters: letters.length,
    }
  } finally {
    await storage.close()
  }
}

async function unsoundChains({ read }: Storage): Promise<object[]> {
  const found: object[] = []
  const heads = await read.selectFrom('audit_heads').select(['chain', 'seq', 'checksum']).execute()
  for (const { chain, ...head } of heads) {
    const verifier = new ChainVerifier()
    verifier.push(Buffer.from(headerLine(orgOfChain(chain))))
    for await (const lines of chainLines(read, systemScope, chain, head.seq))
      verifier.push(Buffer.from(lines))
    verifier.push(Buffer.from(trailerLine(head)))
    const verdict = verifier.end()
    if (verdict.verdict !== 'sound') found.push(verdict)
  }
  return found
}

/** Most kills of a soak: each takes a start of the service and an apply. */
const maxKills = 500

/**
 * Statements to die at: in `npm test` the first, the last and some between; in the soak all of them, or where they are too
 * many each nth, from another one each time.
 */
function stepsOf(count: number): number[] {
  const random = randomFrom(seed)
  if (!isSoak) {
    const between = Array.from({ length: 2 }, () => Math.floor(random() * count))
    return [...new Set([0, ...between, count - 1])].sort((one, other) => one - other)
  }
  const stride = Math.ceil(count / maxKills)
  const first = Math.floor(random() * stride)
  return Array.from({ length: Math.ceil((count - first) / stride) }, (_, n) => first + n * stride)
}

onEveryDatabase((kind, open) => {
  it(`kill -9 at every statement of an apply leaves all of it or nothing, and of two at once one is refused (SEED=${seed})`, {
    timeout: depth(120_000, 7_200_000),
  }, async () => {
    const database = await open()
    await database.storage.close()
    const first = await serviceOn(database)
    const { id } = await first
      .client(await systemToken(first))
      .call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
    const token = await addPartnerUser(first, 'ada', id, 'all')
    const setUp = first.client(token)
    const begun = await setUp.call(api.configuration.plan, { body: ask(before) })
    await setUp.call(api.configuration.apply, { body: { ...ask(before), version: begun.version } })
    const { version, totals: planned } = await setUp.call(api.configuration.plan, { body: ask(after) })
    expect(planned).toEqual({ ...totals, adopt: 0, release: 0, refused: 0, left: 0 })
    await first.close()
    const old = await look(database)
    expect(old).toMatchObject({ entries: [21 * organizations + 1], unsound: [], letters: 0 })

    /** The state after the process has killed itself there, and what it said. */
    const killedAt = async (step: string) => {
      const env = { ...serviceEnv, KILLED_AT: step, NODE_OPTIONS: `--import=${hook}` }
      const service = new ServeProcess(database, { env })
      const client = clientOf(await service.listening(), await newToken(token))
      const body = { ...ask(after), version, revision: step }
      await expect(client.call(api.configuration.apply, { body }), step).rejects.not.toBeInstanceOf(ApiError)
      expect(await service.ended).toEqual({ code: null, signal: 'SIGKILL' })
      await connectionsGone(database)
      const { tables, ...rest } = await look(database)
      return { rest, changed: changed(old.tables, tables), stderr: service.stderr }
    }
    const untouched = { entries: old.entries, unsound: [], letters: 0 }
    const last = await killedAt('commit')
    expect(last).toMatchObject({ rest: untouched, changed: [] })
    const count = Number(/^(\d+) statements$/m.exec(last.stderr)?.[1])
    expect(count).toBeGreaterThan(changes)
    for (const step of stepsOf(count)) {
      const { rest, changed: rows } = await killedAt(String(step))
      expect({ step, rest, rows }).toEqual({ step, rest: untouched, rows: [] })
    }
    const { rest } = await killedAt('committed')
    expect(rest).toEqual({
      entries: [21 * organizations + 1, changes + 1],
      unsound: [],
      letters: organizations,
    })

    const replicas = Array.from({ length: kind === 'postgres' ? 2 : 1 }, () => new ServeProcess(database))
    const urls = await Promise.all(replicas.map((replica) => replica.listening()))
    const renewed = await newToken(token)
    const clients = [urls[0]!, urls.at(-1)!].map((url) => clientOf(url, renewed))
    expect((await clients[0]!.call(api.configuration.plan, { body: ask(after) })).changes).toEqual([])
    const bodies = await Promise.all(
      ['Europe/Rome', 'Europe/Oslo'].map(async (timezone) => {
        const document = { ...after, sites: after.sites!.map((site) => ({ ...site, timezone })) }
        const planned = await clients[0]!.call(api.configuration.plan, { body: ask(document) })
        return { ...ask(document), version: planned.version }
      }),
    )
    const both = await Promise.allSettled(
      clients.map((client, at) => client.call(api.configuration.apply, { body: bodies[at]! })),
    )
    const won = both.findIndex(({ status }) => status === 'fulfilled')
    expect(both[1 - won]).toMatchObject({ reason: { status: 409, code: 'conflict' } })
    const { version: _, ...applied } = bodies[won]!
    expect((await clients[0]!.call(api.configuration.plan, { body: applied })).changes).toEqual([])
    for (const replica of replicas) await replica.stop()
    expect((await look(database)).entries).toEqual([
      8 * organizations + 1,
      21 * organizations + 1,
      changes + 1,
    ])
  })
})
