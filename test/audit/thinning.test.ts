import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { openCheckpoint, treeHeadOf } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { isConsistent } from '../../src/audit/checkpoints/merkle-tree.ts'
import { dropOldTiles, thinCheckpoints } from '../../src/audit/checkpoints/retention.ts'
import { VerificationState } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit } from '../../src/audit/outbox.ts'
import { forgetArchives } from '../../src/audit/retention/archiving.ts'
import { pruneChain } from '../../src/audit/retention/jobs.ts'
import { retentionActions, toAuditedPolicy } from '../../src/audit/retention/rules.ts'
import { changeHold, changePolicy, lockPolicy } from '../../src/audit/retention/store.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemScope } from '../../src/core/scope.ts'
import { addSeconds } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { memoryArchive, retentionOn } from './retention-world.ts'
import { happening } from './rows.ts'

const whole = { milliseconds: 60_000 }

describe('what was signed of a chain', () => {
  onEveryDatabase((_, open) => {
    const begin = async () => retentionOn(await open(), memoryArchive())
    type World = Awaited<ReturnType<typeof begin>>
    const soundness = ({ parts, orgId }: World) =>
      verifyStoredChain({ ...parts, memory: new VerificationState(), onVerdict: () => {} }, orgId)
    const seqsIn = async ({ storage }: World, table: 'audit_checkpoints' | 'audit_archives') => {
      const column = table === 'audit_checkpoints' ? 'seq' : 'last_seq'
      const rows = await storage.read
        .selectFrom(table)
        .select(column as 'seq')
        .orderBy(column as 'seq')
        .execute()
      return rows.map((row) => Number(Object.values(row)[0]))
    }
    const archiving = ({ storage, orgId, clock }: World) =>
      storage.write(async (tx) => {
        const before = await lockPolicy(tx, systemScope, orgId)
        const after = { ...before, archiveToS3: true }
        await changePolicy(tx, systemScope, orgId, after)
        const details = { before: toAuditedPolicy(before), after: toAuditedPolicy(after) }
        const changed = { ...happening(orgId), action: retentionActions.change, details }
        await recordAudit(tx, toDraftEntry(changed, clock()))
      })

    it('is thinned out to the last of each month, and to what archives end with', async () => {
      const world = await begin()
      const { parts, clock, aged, storage, orgId } = world
      for (let n = 0; n < 6; n++) {
        await aged(orgId, [1])
        await takeCheckpoint(parts, orgId)
        clock.forward(10 * 86_400)
      }
      const rows = await storage.read.selectFrom('audit_checkpoints').select(['seq', 'created_at']).execute()
      const lastOfMonth = new Map(
        rows.sort((a, b) => a.seq - b.seq).map((one) => [one.created_at.slice(0, 7), one.seq]),
      )
      const archived = { chain: orgId, first_seq: 1, last_seq: 2, object_key: 'k', bytes: 1, sha256: '' }
      await storage.write((tx) =>
        tx
          .insertInto('audit_archives')
          .values({ ...archived, created_at: clock() })
          .execute(),
      )
      await thinCheckpoints(storage, addSeconds(clock(), -365 * 86_400))
      expect(await seqsIn(world, 'audit_checkpoints')).toEqual([1, 2, 3, 4, 5, 6])
      await thinCheckpoints(storage, clock())
      expect(await seqsIn(world, 'audit_checkpoints')).toEqual(
        [...new Set([2, ...lastOfMonth.values()])].sort((a, b) => a - b),
      )
      expect(lastOfMonth.size).toBeLessThan(4)
      expect(await soundness(world)).toMatchObject({ verdict: 'sound' })
    })

    it('is thinned out in many chunks, between which some of each stay', async () => {
      const { storage } = await begin()
      const chains = Array.from({ length: 40 }, () => newId())
      const months = ['2030-01', '2030-02', '2030-03']
      const rows = chains.flatMap((chain) =>
        months.flatMap((month, at) =>
          // At the same time in all chains, as a service that signs them in turns has it.
          Array.from({ length: 5 }, (_, n) => ({
            chain,
            seq: at * 5 + n + 1,
            note: 'not read here',
            created_at: `${month}-0${n + 1}T00:00:00.000Z`,
          })),
        ),
      )
      await storage.write((tx) => tx.insertInto('audit_checkpoints').values(rows).execute())
      await thinCheckpoints(storage, '2031-01-01T00:00:00.000Z')
      const left = await storage.read
        .selectFrom('audit_checkpoints')
        .select(['chain', 'seq'])
        .where('chain', 'in', chains)
        .orderBy('seq')
        .execute()
      const ofEach = chains.map((chain) => left.filter((row) => row.chain === chain).map(({ seq }) => seq))
      expect(ofEach).toEqual(chains.map(() => [5, 10, 15]))
    })

    it('loses tiles that no newer proof needs, and stays sound', async () => {
      const world = await begin()
      const { parts, clock, aged, storage, orgId } = world
      await aged(
        orgId,
        Array.from({ length: 1300 }, () => 4000),
      )
      const pinned = (await takeCheckpoint(parts, orgId)).checkpoint
      await aged(orgId, [1, 1])
      await pruneChain(parts, orgId, whole)
      clock.forward(100 * 86_400)
      const tiles = async () =>
        (
          await storage.read
            .selectFrom('audit_tiles')
            .select('idx')
            .where('level', '=', 0)
            .orderBy('idx')
            .execute()
        ).map(({ idx }) => idx)
      await dropOldTiles(storage, addSeconds(clock(), -200 * 86_400))
      expect(await tiles()).toEqual([0, 1, 2, 3, 4, 5])
      await dropOldTiles(storage, addSeconds(clock(), -10 * 86_400))
      expect(await tiles()).toEqual([5])
      expect(await soundness(world)).toMatchObject({ verdict: 'sound', entries: 2 })
      await aged(
        orgId,
        Array.from({ length: 300 }, () => 1),
      )
      const later = (await takeCheckpoint(parts, orgId)).checkpoint
      expect(later.head.seq).toBeGreaterThan(pinned.head.seq)
      expect(await soundness(world)).toMatchObject({ verdict: 'sound' })
    })

    it('keeps records of archives until their entries are gone, and under a hold', async () => {
      const world = await begin()
      const { parts, clock, aged, storage, orgId } = world
      await aged(orgId, [4000, 3999, 1])
      await archiving(world)
      await pruneChain(parts, orgId, whole)
      expect(await seqsIn(world, 'audit_archives')).toEqual([2])
      const live = { chain: orgId, first_seq: 3, last_seq: 3, object_key: 'live', bytes: 1, sha256: '' }
      await storage.write((tx) =>
        tx
          .insertInto('audit_archives')
          .values({ ...live, created_at: clock() })
          .execute(),
      )
      clock.forward(86_400)
      const hold = (reason: string | null) =>
        storage.write((tx) =>
          changeHold(
            tx,
            systemScope,
            orgId,
            reason === null ? null : { reason, userId: null, userEmail: null, since: clock() },
          ),
        )
      await hold('a lawsuit')
      await forgetArchives(storage, clock())
      expect(await seqsIn(world, 'audit_archives')).toEqual([2, 3])
      await expect(storage.write((tx) => tx.deleteFrom('audit_archives').execute())).rejects.toThrow(
        'what was archived',
      )
      await hold(null)
      await forgetArchives(storage, clock())
      expect(await seqsIn(world, 'audit_archives')).toEqual([3])
    })

    it('proves growth since every state after the tiles that are gone', async () => {
      const database = await open()
      const service = await startService(async () => database)
      const { storage } = service
      const { orgs, tokens } = await buildWorld(service)
      const { parts, aged } = retentionOn(database)
      const orgId = orgs.bakery.id
      const client = service.client(tokens.bakery)
      await aged(
        orgId,
        Array.from({ length: 600 }, () => 1),
      )
      const note = (await client.call(api.auditCheckpoints.checkpoint)).checkpoint
      const opened = openCheckpoint(note, [])
      if (opened.state === 'unreadable') throw new Error('unreadable')
      const { seq } = opened.checkpoint.head
      await storage.write((tx) =>
        tx.deleteFrom('audit_tiles').where('idx', '=', 0).where('level', '=', 0).execute(),
      )
      // Without an anchor that is not the work of retention.
      const proof = (since: number) => client.call(api.auditCheckpoints.proof, { query: { since } })
      await expect(proof(100)).rejects.toMatchObject({ code: 'audit_history_changed' })
      const anchor = { chain: orgId, seq: 300, checksum: '', pruned_count: 300, note: '', tree: '[]' }
      await storage.write((tx) =>
        tx
          .insertInto('audit_anchors')
          .values({ ...anchor, created_at: parts.clock() })
          .execute(),
      )
      await expect(proof(100)).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'query.since', message: expect.stringContaining('compare with a later checkpoint') },
        ],
      })
      const grown = await proof(seq)
      const newer = openCheckpoint(grown.checkpoint, [])
      if (newer.state === 'unreadable') throw new Error('unreadable')
      const path = grown.path.map((text) => Buffer.from(text, 'base64'))
      expect(isConsistent(treeHeadOf(opened.checkpoint), treeHeadOf(newer.checkpoint), path)).toBe(true)
    })
  })
})
