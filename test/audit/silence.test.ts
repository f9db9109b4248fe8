import { existsSync, readdirSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entryLine } from '../../src/audit/chain.ts'
import { openCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../src/audit/checkpoints/local-copies.ts'
import { findLastCheckpoint } from '../../src/audit/checkpoints/store.ts'
import * as verdicts from '../../src/audit/checkpoints/verdicts.ts'
import { VerificationState, verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { linkEntries, recordAudit } from '../../src/audit/outbox.ts'
import { pruneChain } from '../../src/audit/retention/jobs.ts'
import { hasReadLease } from '../../src/audit/retention/read-leases.ts'
import { retentionActions } from '../../src/audit/retention/rules.ts'
import { emptyRetentionRow, listChainsToPrune } from '../../src/audit/retention/store.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds } from '../../src/core/time.ts'
import type { Db } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { cutTo, forgetSigned, happen, partsOn, type TestParts, unguarded } from './chains.ts'
import { happening } from './rows.ts'

/** What an attacker does who controls the database only. */
type Silencing = (tx: Db, chain: string, parts: TestParts) => Promise<unknown>

const never = '2999-01-01T00:00:00.000Z'

const gone =
  (
    ...tables: ('audit_logs' | 'audit_heads' | 'audit_checkpoints' | 'audit_tiles' | 'audit_verdicts')[]
  ): Silencing =>
  async (tx, chain) => {
    for (const table of tables) await tx.deleteFrom(table).where('chain', '=', chain).execute()
  }

const verdict =
  (changed: object): Silencing =>
  (tx, chain) =>
    tx.updateTable('audit_verdicts').set(changed).where('chain', '=', chain).execute()

const retention =
  (changed: object): Silencing =>
  (tx, chain) =>
    tx
      .insertInto('audit_retention')
      .values({
        chain,
        retention_days: 365,
        archive_to_s3: 0,
        failures: 0,
        ...emptyRetentionRow,
        ...changed,
      })
      .execute()

const signedAt =
  (time: string, where: 'inside' | 'outside'): Silencing =>
  async (tx, chain, parts) => {
    const last = (await findLastCheckpoint(tx, chain))!
    const opened = openCheckpoint(last.note, [])
    if (opened.state === 'unreadable') throw new Error('no checkpoint')
    const note = parts.signer.sign({ ...opened.checkpoint, time })
    if (where === 'outside') return parts.localCopies.write(chain, note)
    return tx.updateTable('audit_checkpoints').set({ note }).where('chain', '=', chain).execute()
  }

/** An entry that the service seals like its own. */
const entryAt =
  (time: string): Silencing =>
  (tx, chain) =>
    recordAudit(tx, toDraftEntry(happening(chain), time))

/** A consistent entry at a position before the first entry of the chain. */
const putBefore =
  (place: number): Silencing =>
  async (tx, chain) => {
    const [row] = linkEntries(chain, { seq: place - 1, checksum: '0'.repeat(64) }, [
      toDraftEntry(happening(chain), '2026-03-01T12:00:00.000Z'),
    ])
    await tx.insertInto('audit_logs').values(row!).execute()
  }

const silencings: [what: string, silencing: Silencing, kind: string][] = [
  ['all rows of a chain removed', gone('audit_logs'), 'truncated'],
  ['its head removed', gone('audit_heads'), 'truncated'],
  ['rows and head removed', gone('audit_logs', 'audit_heads'), 'truncated'],
  ['rows, head and verdict removed', gone('audit_logs', 'audit_heads', 'audit_verdicts'), 'truncated'],
  [
    'everything about it removed',
    gone('audit_logs', 'audit_heads', 'audit_checkpoints', 'audit_tiles', 'audit_verdicts'),
    'truncated',
  ],
  [
    'its head moved before its first entry',
    (tx, chain) => tx.updateTable('audit_heads').set({ seq: 0 }).where('chain', '=', chain).execute(),
    'truncated',
  ],
  [
    'its head moved back',
    (tx, chain) => tx.updateTable('audit_heads').set({ seq: 7 }).where('chain', '=', chain).execute(),
    'truncated',
  ],
  ['a verdict dated 2999', verdict({ checked_at: never }), 'postdated'],
  ['a verdict with an invalid time', verdict({ checked_at: 'never' }), 'postdated'],
  ['a verdict dated tomorrow', verdict({ checked_at: '2026-03-03T12:00:00.000Z' }), 'postdated'],
  ['a checkpoint dated 2999', signedAt(never, 'inside'), 'postdated'],
  ['a local checkpoint dated 2999', signedAt(never, 'outside'), 'postdated'],
  [
    'a checkpoint made in 2999',
    (tx, chain) =>
      tx.updateTable('audit_checkpoints').set({ created_at: never }).where('chain', '=', chain).execute(),
    'postdated',
  ],
  ['a lease of 2999', retention({ lease: 'x', leased_until: never }), 'postdated'],
  ['a next try in 2999', retention({ retry_at: never }), 'postdated'],
  ['a last run in 2999', retention({ last_cleanup_at: never }), 'postdated'],
  ['a failure in 2999', retention({ error: 'x', error_at: never }), 'postdated'],
  ['a hold since 2999', retention({ held_at: never, hold_reason: 'x' }), 'postdated'],
  [
    'a reader until 2999',
    (tx, chain) => tx.insertInto('audit_readings').values({ id: newId(), chain, until: never }).execute(),
    'postdated',
  ],
  ['an entry of 2999', entryAt(never), 'postdated'],
  ['an entry inserted before its first', putBefore(0), 'inserted'],
  ['an entry inserted far before its first', putBefore(-5), 'inserted'],
]

inTurn((open) => {
  const begin = async (count = 20) => {
    const parts = partsOn(await open())
    const chain = newId()
    const other = newId()
    await happen(parts.storage, chain, count)
    await happen(parts.storage, other, 5)
    await takeDueCheckpoints(parts)
    await verifyDue(parts)
    expect(parts.verdicts.map((one) => one.verdict)).toEqual(['sound', 'sound'])
    parts.verdicts.length = 0
    return { parts, storage: parts.storage, chain, other }
  }
  /** The verdicts on all chains that are due within an hour. */
  const watched = async (parts: TestParts) => {
    parts.verdicts.length = 0
    for (let turn = 0; turn < 2; turn += 1) await verifyDue(parts)
    return new Map(parts.verdicts.map((one) => [one.chain, one]))
  }
  const storedOf = async ({ storage }: TestParts, chain: string) =>
    storage.read.selectFrom('audit_verdicts').selectAll().where('chain', '=', chain).executeTakeFirst()

  describe('an attacker with the database alone cannot silence the verification', () => {
    it.each(silencings)('by %s', async (_name, silencing, kind) => {
      const { parts, storage, chain, other } = await begin()
      await unguarded(storage, (tx) => silencing(tx, chain, parts))
      parts.clock.forward(86_400 + 1)
      const found = await watched(parts)
      expect(found.get(chain)).toMatchObject({ verdict: 'tampered', fault: { kind } })
      expect(found.get(other)).toMatchObject({ verdict: 'sound' })
      expect(await storedOf(parts, chain)).toMatchObject({ verdict: 'tampered' })
    })

    it('and small differences between clocks are no fault', async () => {
      const { parts, storage, chain } = await begin()
      const ahead = addSeconds(parts.clock(), 86_400 + 240)
      await unguarded(storage, async (tx) => {
        await signedAt(ahead, 'inside')(tx, chain, parts)
        await retention({ last_cleanup_at: ahead, lease: 'x', leased_until: addSeconds(ahead, 60) })(
          tx,
          chain,
          parts,
        )
      })
      parts.clock.forward(86_400 + 1)
      expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'sound' })
    })

    it('by repeatedly storing a fresh sound verdict', async () => {
      const { parts, storage, chain } = await begin()
      await cutTo(storage, chain, 12)
      await forgetSigned(storage, chain)
      for (let hour = 0; hour < 5; hour += 1) {
        parts.clock.forward(3600)
        await storage.write((tx) =>
          verdict({ verdict: 'sound', fault: null, checked_at: parts.clock() })(tx, chain, parts),
        )
        expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'tampered' })
      }
    })

    it('by restoring an earlier verdict of the service itself', async () => {
      const { parts, storage, chain } = await begin()
      const sound = (await storedOf(parts, chain))!
      parts.clock.forward(86_400 + 1)
      await cutTo(storage, chain, 12)
      expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'tampered' })
      await storage.write((tx) => verdict(sound)(tx, chain, parts))
      expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'tampered' })
    })

    it('by preventing processes from claiming it or storing their verdict', async () => {
      const { parts, storage, chain } = await begin()
      await cutTo(storage, chain, 12)
      parts.clock.forward(86_400 + 1)
      const takenAway = {
        ...parts,
        storage: {
          ...storage,
          read: storage.read,
          write: async (work: (tx: Db) => Promise<unknown>, options?: object) => {
            const result = await storage.write(work as never, options as never)
            // Like a trigger that suppresses changes.
            return typeof result === 'boolean' ? false : result
          },
        },
      } as TestParts
      await verifyDue(takenAway)
      expect(parts.verdicts).toEqual([])
      parts.clock.forward(3600)
      // Each time the stored verdict differs from the one that was read.
      await storage.write((tx) => tx.updateTable('audit_verdicts').set({ seal: null }).execute())
      await verifyDue(takenAway)
      expect(parts.verdicts.find((one) => one.chain === chain)).toMatchObject({ verdict: 'tampered' })
      expect(parts.memory.faults.get(chain)).toMatchObject({ verdict: 'tampered' })
    })

    it.each([
      ['deleting the verdicts on other chains', 'verdicts'],
      ['adding other chains', 'chains'],
    ])('by %s, so that a chain never gets its turn', async (_name, what) => {
      const { parts, storage, chain } = await begin()
      const others = [newId(), newId(), newId()]
      for (const one of others) await happen(storage, one, 1)
      await takeDueCheckpoints(parts)
      for (let run = 0; run < 3; run += 1) await verifyDue(parts)
      await cutTo(storage, chain, 12)
      parts.clock.forward(86_400 + 1)
      for (let run = 0; run < 20 && !parts.memory.faults.has(chain); run += 1) {
        await storage.write(async (tx) => {
          if (what === 'verdicts')
            return tx.deleteFrom('audit_verdicts').where('chain', 'in', others).execute()
          const heads = others.map(() => ({ chain: newId(), seq: 1, checksum: '0'.repeat(64) }))
          return tx.insertInto('audit_heads').values(heads).execute()
        })
        await verifyDue(parts)
        parts.clock.forward(60)
      }
      expect(parts.memory.faults.get(chain)).toMatchObject({ verdict: 'tampered' })
    })

    it('by killing the process that is about to verify, which leaves no verdict', async () => {
      const { parts, storage, chain } = await begin()
      await cutTo(storage, chain, 12)
      parts.clock.forward(86_400 + 1)
      const { signer } = parts
      const due = await verdicts.listChainsToVerify(storage.read, {
        localChains: [],
        signer,
        now: parts.clock(),
      })
      const one = due.find((each) => each.chain === chain)!
      expect(await storage.write((tx) => verdicts.claimVerification(tx, signer, one, parts.clock()))).toBe(
        true,
      )
      expect(await storedOf(parts, chain)).toMatchObject({ verdict: 'pending' })
      parts.clock.forward(3600)
      const found = await watched({ ...parts, memory: new VerificationState() })
      expect(found.get(chain)).toMatchObject({ verdict: 'tampered' })
    })

    describe('by means of retention:', () => {
      /** A chain with entries old enough to be pruned, and functions that change it. */
      async function old() {
        const { parts, storage, chain } = await begin()
        const say = (action: string, details: object = {}, result: 'success' | 'failure' = 'success') =>
          storage.write((tx) =>
            recordAudit(
              tx,
              toDraftEntry({ ...happening(chain), action, details: { ...details }, result }, parts.clock()),
            ),
          )
        const set = (values: Partial<typeof policy>) =>
          storage.write(async (tx) => {
            await tx
              .insertInto('audit_retention')
              .values({ chain, ...policy, ...values })
              .onConflict((c) => c.column('chain').doUpdateSet(values))
              .execute()
          })
        const pruning = { ...parts, archive: undefined, log: { warn: () => {} } as never }
        const prune = async () => {
          const { state, pruned } = await pruneChain(pruning, chain, { milliseconds: 3000 })
          parts.clock.forward(3600)
          return { state, pruned }
        }
        return { parts, storage, chain, say, set, prune }
      }
      const policy = { ...emptyRetentionRow, retention_days: 365, archive_to_s3: 0, failures: 0 }
      const year = 400 * 86_400

      it('removing a hold', async () => {
        const { parts, storage, chain, say, prune } = await old()
        await say(retentionActions.hold)
        await say(retentionActions.release, {}, 'failure')
        parts.clock.forward(year)
        expect(await prune()).toEqual({ state: 'failed', pruned: 0 })
        const found = await watched(parts)
        expect(found.get(chain)).toMatchObject({ verdict: 'tampered', fault: { kind: 'rewritten' } })
        expect(found.get(chain)!.fault!.message).toContain('hold')
        // Changed columns beside the texts do not help either.
        const rename = (from: string, to: string) =>
          unguarded(storage, (tx) =>
            tx.updateTable('audit_logs').set({ action: to }).where('action', '=', from).execute(),
          )
        await rename(retentionActions.hold, 'x')
        expect(await prune()).toEqual({ state: 'failed', pruned: 0 })
        await rename('x', retentionActions.hold)
        await say(retentionActions.release)
        expect(await prune()).toMatchObject({ state: 'done' })
        expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'sound' })
      })

      it.each([
        ['that is the default', undefined, { retention_days: 1 }, {}],
        [
          'that was changed before',
          { retentionDays: 900, archiveToS3: false },
          { retention_days: 30 },
          { retention_days: 900 },
        ],
        [
          'that archives first',
          { retentionDays: 365, archiveToS3: true },
          { archive_to_s3: 0 },
          { archive_to_s3: 1 },
        ],
      ])('shortening the policy %s', async (_name, said, forged, right) => {
        const { parts, chain, say, set, prune } = await old()
        if (said) await say(retentionActions.change, { before: {}, after: said })
        await say(retentionActions.change, { after: { retentionDays: 1, archiveToS3: false } }, 'failure')
        await say(retentionActions.run, { pruned: 0, retentionDays: 1, archiveToS3: false })
        await set(forged)
        parts.clock.forward(year)
        expect(await prune()).toEqual({ state: 'failed', pruned: 0 })
        const { fault } = (await watched(parts)).get(chain)!
        expect(fault).toMatchObject({
          kind: 'rewritten',
          message: expect.stringContaining('keep entries for'),
        })
        await set({ ...policy, ...right })
        parts.clock.forward(86_400)
        expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'sound' })
      })

      it('shortening the policy after the entry that changed it was deleted', async () => {
        const { parts, chain, say, set, prune } = await old()
        await say(retentionActions.change, { after: { retentionDays: 300, archiveToS3: false } })
        await set({ retention_days: 300 })
        parts.clock.forward(year)
        expect(await prune()).toMatchObject({ state: 'done', pruned: 21 })
        // The entry that the service records.
        await say(retentionActions.run, { pruned: 21, retentionDays: 300, archiveToS3: false })
        for (let day = 0; day < 3; day += 1) await say('device.update')
        expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'sound' })
        await set({ retention_days: 1 })
        parts.clock.forward(2 * 86_400)
        expect(await prune()).toEqual({ state: 'failed', pruned: 0 })
        expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'tampered' })
      })
    })

    it('by inserting an entry in place of one that retention removed', async () => {
      const { parts, storage, chain } = await begin()
      parts.clock.forward(400 * 86_400)
      const pruning = { ...parts, archive: undefined, log: { warn: () => {} } as never }
      expect(await pruneChain(pruning, chain, { milliseconds: 3000 })).toMatchObject({ pruned: 20 })
      await happen(storage, chain, 3)
      expect((await watched(parts)).get(chain)).toMatchObject({ verdict: 'sound' })
      await storage.write((tx) => putBefore(7)(tx, chain, parts))
      parts.clock.forward(86_400 + 1)
      expect((await watched(parts)).get(chain)).toMatchObject({
        verdict: 'tampered',
        fault: { kind: 'inserted' },
      })
    })

    it('by a chain whose name leads to another file', async () => {
      const { parts, storage, chain, other } = await begin()
      const name = '../secrets.json'
      const [row] = linkEntries(name, { seq: 0, checksum: '0'.repeat(64) }, [
        toDraftEntry(happening(name), parts.clock()),
      ])
      await storage.write(async (tx) => {
        await tx.insertInto('audit_logs').values(row!).execute()
        await tx.insertInto('audit_heads').values({ chain: name, seq: 1, checksum: row!.checksum }).execute()
      })
      expect(entryLine(row!.checksum, row!.canonical)).toContain(name)
      await happen(storage, other, 1)
      await takeDueCheckpoints(parts)
      expect(existsSync(join(parts.localCopies.fileOf(chain), '..', name))).toBe(false)
      expect((await findLastCheckpoint(storage.read, other))?.seq).toBe(6)
      await expect(parts.localCopies.write(name, 'x')).rejects.toThrow('name of no chain')
      expect(await parts.localCopies.read(name)).toBeUndefined()
      parts.clock.forward(86_400 + 1)
      const found = await watched(parts)
      expect(found.get(name)).toMatchObject({ verdict: 'tampered' })
      expect(found.get(chain)).toMatchObject({ verdict: 'sound' })
    })

    it('and a checkpoint with a future time is signed again', async () => {
      const { parts, storage, chain } = await begin()
      await storage.write((tx) => signedAt(never, 'inside')(tx, chain, parts))
      expect((await takeCheckpoint(parts, chain)).checkpoint.time).toBe(parts.clock())
    })

    it('or keep retention from a chain', async () => {
      const { parts, storage, chain } = await begin()
      const stuck = retention({ lease: 'x', leased_until: never, retry_at: never, last_cleanup_at: never })
      await storage.write((tx) => stuck(tx, chain, parts))
      const reader = { id: newId(), chain, until: never }
      await storage.write((tx) => tx.insertInto('audit_readings').values(reader).execute())
      parts.clock.forward(400 * 86_400)
      expect(await listChainsToPrune(storage.read, parts.clock(), 10)).toContain(chain)
      expect(await storage.write((tx) => hasReadLease(tx, chain, parts.clock()))).toBe(false)
      const pruning = { ...parts, archive: undefined, log: { warn: () => {} } as never }
      expect(await pruneChain(pruning, chain, { milliseconds: 3000 })).toMatchObject({
        state: 'done',
        pruned: 20,
      })
      await verifyDue(parts)
      expect((await watched(parts)).get(chain) ?? { verdict: 'sound' }).toMatchObject({ verdict: 'sound' })
    })
  })

  describe('the list of chains', () => {
    it('shows a chain whose head, rows or organization were removed, and what is missing', async () => {
      const service = await startService(open)
      const { tokens, orgs } = await buildWorld(service)
      const { bakery, garage } = orgs
      const system = service.client(tokens.system)
      const acme = service.client(tokens.acme)
      for (const { id } of [bakery, garage]) {
        await system.call(api.auditCheckpoints.checkpoint, { query: { orgId: id } })
      }
      // Not an organization of this database, as if it had been removed too.
      const lost = newId()
      const note = await localCopiesIn(`${service.dataDir}/checkpoints`).read(bakery.id)
      await localCopiesIn(`${service.dataDir}/checkpoints`).write(lost, note!.replaceAll(bakery.id, lost))
      await unguarded(service.storage, async (tx) => {
        await gone(
          'audit_logs',
          'audit_heads',
          'audit_checkpoints',
          'audit_tiles',
        )(tx, bakery.id, {} as never)
        await gone('audit_heads')(tx, garage.id, {} as never)
      })
      const idsOf = async (client: typeof system) =>
        (await client.call(api.auditLogs.heads)).data.map(({ orgId }) => orgId)
      expect(await idsOf(system)).toEqual(expect.arrayContaining([null, bakery.id, garage.id, lost]))
      expect((await idsOf(acme)).sort()).toEqual([bakery.id, garage.id].sort())
      expect(await idsOf(service.client(tokens.globex))).toEqual([orgs.harbor.id])
      expect(await idsOf(service.client(tokens.acmeBakery))).toEqual([bakery.id])
      for (const orgId of [bakery.id, garage.id, lost]) {
        const verifier = new ChainVerifier()
        for await (const piece of system.stream(api.auditLogs.chain, { query: { orgId } }))
          verifier.push(piece)
        expect(verifier.end()).toMatchObject({ verdict: 'tampered', orgId, fault: { kind: 'truncated' } })
      }
      const none = system.stream(api.auditLogs.chain, { query: { orgId: newId() } })
      await expect(none[Symbol.asyncIterator]().next()).rejects.toMatchObject({ status: 404 })
    })
  })

  describe('local checkpoints', () => {
    it('are listed by chain; an abandoned draft is removed, and a current one stays', async () => {
      const { parts, chain, other } = await begin()
      const folder = join(parts.localCopies.fileOf(chain), '..')
      const [old, young] = [`${chain}.${newId()}`, `${chain}.${newId()}`]
      for (const name of [old, young, 'notes.txt', `${chain}.txt`]) writeFileSync(join(folder, name), 'x')
      utimesSync(join(folder, old), 1, 1)
      expect((await parts.localCopies.list()).sort()).toEqual([chain, other].sort())
      expect(readdirSync(folder).sort()).toEqual([chain, other, young, 'notes.txt', `${chain}.txt`].sort())
      expect(await localCopiesIn(join(folder, 'none')).list()).toEqual([])
    })
  })
})
