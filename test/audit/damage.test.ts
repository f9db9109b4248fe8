import { parse } from 'csv-parse/sync'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { checksumOf } from '../../src/audit/chain.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import type { Client } from '../../src/core/client.ts'
import { systemClock } from '../../src/core/time.ts'
import type { Db } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried } from '../depth.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { partsOn, unguarded } from './chains.ts'

type Damage = (tx: Db, chain: string) => Promise<unknown>

/** Changes the third entry of a chain in the database. */
const entry =
  (changed: object): Damage =>
  (tx, chain) =>
    tx.updateTable('audit_logs').set(changed).where('chain', '=', chain).where('seq', '=', 3).execute()

/** Replaces the text of the entry, with a matching checksum. */
const text = (canonical: string): Damage => entry({ canonical, checksum: checksumOf(canonical) })

const anchor =
  (changed: object): Damage =>
  (tx, chain) =>
    tx
      .insertInto('audit_anchors')
      .values({
        chain,
        seq: 2,
        checksum: 'a'.repeat(64),
        pruned_count: 2,
        note: 'x',
        tree: '[]',
        created_at: '2026-01-01T00:00:00.000Z',
        ...changed,
      })
      .execute()

const checkpoint =
  (changed: object): Damage =>
  (tx, chain) =>
    tx.updateTable('audit_checkpoints').set(changed).where('chain', '=', chain).execute()

const verdict =
  (changed: object): Damage =>
  async (tx, chain) => {
    const row = { chain, verdict: 'sound', fault: null, entries: 1, checked_at: '2020-01-01T00:00:00.000Z' }
    await tx.deleteFrom('audit_verdicts').where('chain', '=', chain).execute()
    await tx
      .insertInto('audit_verdicts')
      .values({ ...row, ...changed })
      .execute()
  }

const head =
  (changed: object): Damage =>
  (tx, chain) =>
    tx.updateTable('audit_heads').set(changed).where('chain', '=', chain).execute()

const tile =
  (hashes: string): Damage =>
  (tx, chain) =>
    tx.updateTable('audit_tiles').set({ hashes }).where('chain', '=', chain).execute()

/** `found` is the verdict on the chain. Data that are rebuilt from the entries leave it sound. */
const damages: [what: string, damage: Damage, found: 'tampered' | 'sound'][] = [
  ['a canonical text of null', entry({ canonical: 'null' }), 'tampered'],
  ['null with its checksum', text('null'), 'tampered'],
  ['invalid JSON', entry({ canonical: '{"action":' }), 'tampered'],
  ['invalid JSON with its checksum', text('{"action":'), 'tampered'],
  ['a list with its checksum', text('[1]'), 'tampered'],
  ['a number with its checksum', text('7'), 'tampered'],
  ['an empty text', text(''), 'tampered'],
  ['lines in the text', text('{\n"seq":3\n}\n'), 'tampered'],
  ['details that are null', text('{"seq":3,"details":null,"orgId":null}'), 'tampered'],
  ['half a surrogate in details', text('{"seq":3,"details":{"a":"\\ud800"}}'), 'tampered'],
  ['an invalid checksum', entry({ checksum: 'none' }), 'tampered'],
  ['a checksum of two lines', entry({ checksum: '"\n"' }), 'tampered'],
  ['an invalid time', entry({ timestamp: 'yesterday' }), 'tampered'],
  ['a future time', entry({ timestamp: '2999-01-01T00:00:00.000Z' }), 'tampered'],
  ['an anchor with too few roots', anchor({ seq: 3 }), 'tampered'],
  ['an anchor with invalid JSON', anchor({ tree: 'none' }), 'tampered'],
  ['an anchor of null', anchor({ tree: 'null' }), 'tampered'],
  ['an anchor of numbers', anchor({ tree: '[1]' }), 'tampered'],
  ['an anchor behind the end', anchor({ seq: 2 ** 20, tree: '["AAAA"]' }), 'tampered'],
  ['an invalid checkpoint', checkpoint({ note: 'none' }), 'tampered'],
  ['an empty checkpoint', checkpoint({ note: '' }), 'tampered'],
  ['an earlier head', head({ seq: 2 }), 'tampered'],
  ['a head behind the end', head({ seq: 1000 }), 'tampered'],
  ['a head below the beginning', head({ seq: -5 }), 'tampered'],
  ['a head with another checksum', head({ checksum: 'x' }), 'tampered'],
  ['no head', (tx, chain) => tx.deleteFrom('audit_heads').where('chain', '=', chain).execute(), 'tampered'],
  ['a tile of half a hash', tile('AAAA'), 'sound'],
  ['a tile with invalid base64', tile('!'), 'sound'],
  ['an unknown verdict', verdict({ verdict: 'fine' }), 'sound'],
  ['a fault with invalid JSON', verdict({ verdict: 'tampered', fault: '{' }), 'sound'],
  ['a verdict with an invalid time', verdict({ checked_at: 'never' }), 'tampered'],
  ['a verdict of the year 2999', verdict({ checked_at: '2999-01-01T00:00:00.000Z' }), 'tampered'],
]

const changedHistory = { status: 409, code: 'audit_history_changed' }

onEveryDatabase((name, open) => {
  describe('a damaged database', () => {
    // Only SQLite stores text in a column of numbers.
    const texts: typeof damages =
      name === 'sqlite' ? [['a head that is not a number', head({ seq: 'x' }), 'tampered']] : []
    const tried = [...damages, ...texts].filter((_, index) => isTried(name, index, 6))
    it.each(tried)('%s gives a verdict, no reader fails', async (_name, damage, found) => {
      const service = await startService(open)
      const { tokens, orgs } = await buildWorld(service)
      const client: Client = service.client(tokens.acme)
      const query = { orgId: orgs.bakery.id }
      const chain = orgs.bakery.id
      await client.call(api.auditCheckpoints.checkpoint, { query })
      const { data: before } = await client.call(api.auditLogs.list, { query })
      const damaged = before.find(({ seq }) => seq === 3)!
      await unguarded(service.storage, (tx) => damage(tx, chain))
      const stored = await service.storage.read
        .selectFrom('audit_logs')
        .select(['canonical', 'checksum', 'timestamp'])
        .where('chain', '=', chain)
        .where('seq', '=', 3)
        .executeTakeFirstOrThrow()
      const isEntry = stored.canonical !== JSON.stringify(damaged) && damagedEntry(stored, damaged)

      const { data } = await client.call(api.auditLogs.list, { query: { ...query, limit: 100 } })
      expect(data.map(({ seq }) => seq)).toEqual(expect.arrayContaining(before.map(({ seq }) => seq)))
      const marked = data.filter((one) => one.damage !== undefined)
      expect(marked).toHaveLength(isEntry ? 1 : 0)

      const { entries } = await client.call(api.auditLogs.flat, { query: { ...query, limit: 100 } })
      expect(entries.filter((one) => one.damage !== undefined)).toHaveLength(marked.length)
      expect((await client.call(api.auditLogs.show, { params: { id: damaged.id } })).damage).toBe(
        marked[0]?.damage,
      )
      await client.call(api.auditLogs.search, { query: { ...query, q: 'e' } })
      await client.call(api.auditLogs.search, { query: { ...query, q: 'null' } })
      const marks = marked.map((one) => one.damage)
      const { data: exported } = JSON.parse(await downloaded(client, { ...query, format: 'json' })) as {
        data: { damage?: string }[]
      }
      expect(exported.flatMap((one) => one.damage ?? [])).toEqual(marks)
      const csv = parse(await downloaded(client, { ...query, format: 'csv' }), { columns: true })
      expect((csv as { damage: string }[]).flatMap((one) => one.damage || [])).toEqual(marks)
      const idsOf = (rows: unknown) => (rows as { id: string }[]).map(({ id }) => id)
      expect(idsOf(csv)).toEqual(expect.arrayContaining(idsOf(exported)))
      await client.call(api.auditRetention.show, { query: { ...query, due: 'true' } })
      await client.call(api.auditRetention.run, { query })

      const verifier = new ChainVerifier()
      for await (const piece of client.stream(api.auditLogs.chain, { query })) verifier.push(piece)
      const said = verifier.end()
      if (marked.length > 0) expect(said).toMatchObject({ verdict: 'tampered', fault: { seq: 3 } })

      for (const [endpoint, more] of [
        [api.auditCheckpoints.checkpoint, {}],
        [api.auditCheckpoints.proof, { since: 1 }],
        [api.auditCheckpoints.proof, { id: before.at(-1)!.id }],
      ] as const) {
        await client
          .call(endpoint as typeof api.auditCheckpoints.checkpoint, {
            query: { ...query, ...more },
          })
          .catch((error: unknown) => expect(error).toMatchObject(changedHistory))
      }

      const parts = { ...partsOn(service), clock: systemClock }
      for (let turn = 0; turn < 5; turn += 1) await verifyDue(parts)
      const verdicts = await service.storage.read
        .selectFrom('audit_verdicts')
        .select(['chain', 'verdict', 'checked_at'])
        .execute()
      const [own, other] = [chain, orgs.harbor.id].map((id) => verdicts.find((one) => one.chain === id))
      expect([own?.verdict, other?.verdict]).toEqual([found, 'sound'])
      // A verdict with a future time does not count.
      expect(own?.checked_at.localeCompare(new Date(Date.now() + 60_000).toISOString())).toBe(-1)
    })
  })
})

/** Whether the row of an entry has changed. */
const damagedEntry = (
  stored: { canonical: string; checksum: string; timestamp: string },
  was: { checksum: string; timestamp: string },
): boolean =>
  checksumOf(stored.canonical) !== was.checksum ||
  stored.checksum !== was.checksum ||
  stored.timestamp !== was.timestamp

async function downloaded(client: Client, query: object): Promise<string> {
  const pieces: Buffer[] = []
  const stream = client.stream(api.auditExports.download, { query: query as never })
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces).toString('utf8')
}
