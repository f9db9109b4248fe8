import { gunzipSync } from 'node:zlib'
import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { openCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { signedChainEnd, takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { VerificationState } from '../../src/audit/checkpoints/verification.ts'
import { listEntries } from '../../src/audit/entries.ts'
import { chainFile } from '../../src/audit/handlers.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { findAnchor, toHeaderAnchor } from '../../src/audit/retention/anchors.ts'
import { archivedUpTo, countArchives } from '../../src/audit/retention/archiving.ts'
import { pruneDue, pruneChain as pruneOnce } from '../../src/audit/retention/jobs.ts'
import { ArchiveFailure } from '../../src/audit/retention/ports.ts'
import {
  archiveKey,
  defaultPolicy,
  retentionActions,
  retryAt,
  toAuditedPolicy,
} from '../../src/audit/retention/rules.ts'
import {
  acquireLease,
  changeHold,
  changePolicy,
  getPolicy,
  listChainsToPrune,
  lockPolicy,
} from '../../src/audit/retention/store.ts'
import { chainOf, toDraftEntry } from '../../src/audit/rules.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import { organizationScope, systemScope } from '../../src/core/scope.ts'
import { addSeconds } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { day, memoryArchive, retentionOn } from './retention-world.ts'
import { happening } from './rows.ts'

const whole = { milliseconds: 60_000 }
type World = ReturnType<typeof retentionOn>

async function pruneChain(...args: Parameters<typeof pruneOnce>) {
  const { state, pruned } = await pruneOnce(...args)
  return { state, pruned }
}

const verdictOf = (pieces: Iterable<string | Buffer>) => {
  const verifier = new ChainVerifier()
  for (const piece of pieces) verifier.push(Buffer.from(piece))
  return verifier.end()
}

async function fileOf({ parts }: World, orgId: string | null): Promise<string[]> {
  const pieces: string[] = []
  for await (const piece of chainFile(
    parts,
    systemScope,
    chainOf(orgId),
    await signedChainEnd(parts, chainOf(orgId)),
  ))
    pieces.push(piece)
  return pieces
}

const policyOf = (world: World, change: { retentionDays?: number; archiveToS3?: boolean }) =>
  world.storage.write(async (tx) => {
    const before = await lockPolicy(tx, systemScope, world.orgId)
    const after = { ...before, ...change }
    await changePolicy(tx, systemScope, world.orgId, after)
    const details = { before: toAuditedPolicy(before), after: toAuditedPolicy(after) }
    await recordAudit(
      tx,
      toDraftEntry({ ...happening(world.orgId), action: retentionActions.change, details }, world.clock()),
    )
  })

const holdOf = (world: World, reason: string | null) =>
  world.storage.write(async (tx) => {
    await lockPolicy(tx, systemScope, world.orgId)
    const hold = reason === null ? null : { reason, userId: null, userEmail: null, since: world.clock() }
    await changeHold(tx, systemScope, world.orgId, hold)
  })

describe('retention of audit chains', () => {
  it('waits longer after each failure, at most a day', () => {
    const now = '2026-03-01T00:00:00.000Z'
    const minutes = [0, 1, 2, 8, 50].map((n) => (Date.parse(retryAt(n, now)) - Date.parse(now)) / 60_000)
    expect(minutes).toEqual([10, 20, 40, 1440, 1440])
  })

  it('names archive objects so that they sort in chain order', () => {
    expect([archiveKey('x', 9, 10), archiveKey('x', 100, 2000)].toSorted()).toEqual([
      'x/000000000009-000000000010.ndjson.gz',
      'x/000000000100-000000002000.ndjson.gz',
    ])
  })
})

onEveryDatabase((kind, open) => {
  const begin = async (archive?: ReturnType<typeof memoryArchive>) => retentionOn(await open(), archive)

  describe('pruning', () => {
    it('keeps 365 days of each chain by default', async () => {
      const world = await begin()
      for (const orgId of [world.orgId, null]) {
        expect(await getPolicy(world.storage.read, systemScope, chainOf(orgId))).toEqual(defaultPolicy)
        await world.aged(orgId, [400, 366, 364, 1])
        expect(await pruneChain(world.parts, chainOf(orgId), whole)).toEqual({ state: 'done', pruned: 2 })
        expect(await world.seqs(orgId)).toEqual([3, 4])
      }
      const { lastCleanupAt } = await getPolicy(world.storage.read, systemScope, world.orgId)
      expect(lastCleanupAt).toBe(world.clock())
    })

    it('deletes entries older than the cutoff, and not those exactly as old', async () => {
      const world = await begin()
      const ms = 1 / day / 1000
      await world.aged(world.orgId, [365 + ms, 365, 365 - ms])
      expect(await pruneChain(world.parts, world.orgId, whole)).toEqual({ state: 'done', pruned: 1 })
      expect(await world.seqs(world.orgId)).toEqual([2, 3])
    })

    it('deletes only a prefix: old entries behind a younger one stay', async () => {
      const world = await begin()
      await world.aged(world.orgId, [500, 500, 3, 500, 500])
      expect(await pruneChain(world.parts, world.orgId, whole)).toEqual({ state: 'done', pruned: 2 })
      expect(await world.seqs(world.orgId)).toEqual([3, 4, 5])
      expect(await pruneChain(world.parts, world.orgId, whole)).toEqual({ state: 'done', pruned: 0 })
    })

    it('leaves other chains alone', async () => {
      const world = await begin()
      const other = '0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55'
      await world.aged(world.orgId, [500, 1])
      await world.aged(other, [500, 500])
      await pruneChain(world.parts, world.orgId, whole)
      expect(await world.seqs(other)).toEqual([1, 2])
      expect((await findAnchor(world.storage.read, systemScope, other)).signed).toBeNull()
      expect((await findAnchor(world.storage.read, organizationScope(other), world.orgId)).signed).toBeNull()
    })

    it('signs an anchor for the deleted entries, and the rest of the chain verifies', async () => {
      const world = await begin()
      const { parts, orgId } = world
      await world.aged(orgId, [...Array(130).fill(500), ...Array(20).fill(1)])
      expect(verdictOf(await fileOf(world, orgId))).toMatchObject({ verdict: 'sound', entries: 150 })
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 130 })
      const verdict = verdictOf(await fileOf(world, orgId))
      expect(verdict).toMatchObject({ verdict: 'sound', entries: 20, head: { seq: 150 } })
      const { note, tree } = toHeaderAnchor(await findAnchor(world.storage.read, systemScope, orgId))!
      const opened = openCheckpoint(note, parts.signer.publicKeys)
      expect(opened).toMatchObject({
        state: 'signed',
        checkpoint: { kind: 'anchor', head: { seq: 130 }, orgId },
      })
      expect(tree).toHaveLength(2)
      const { prunedCount } = await findAnchor(world.storage.read, systemScope, orgId)
      expect(prunedCount).toBe(130)
    })

    it('leaves a chain that the service finds sound, behind an anchor it trusts', async () => {
      const world = await begin()
      const { parts, orgId, storage } = world
      const judging = { ...parts, memory: new VerificationState(), onVerdict: () => {} }
      for (const ages of [[...Array(300).fill(500), 1], [...Array(400).fill(500)]]) {
        await world.aged(orgId, ages)
        await pruneChain(parts, orgId, whole)
        const entries = (await world.seqs(orgId)).length
        expect(await verifyStoredChain(judging, orgId)).toMatchObject({ verdict: 'sound', entries })
      }
      const forger = retentionOn({ storage, dataDir: '' } as never).parts.signer
      const forged = { ...judging, signer: { ...parts.signer, trusted: async () => [...forger.publicKeys] } }
      expect(await verifyStoredChain(forged, orgId)).toMatchObject({
        verdict: 'tampered',
        fault: { message: 'The anchor of the chain is not one that the service signed' },
      })
    })

    it('may leave an empty chain, which continues from its head', async () => {
      const world = await begin()
      const { orgId, parts, storage } = world
      await world.aged(orgId, [500, 500, 500])
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 3 })
      expect(await world.seqs(orgId)).toEqual([])
      const query = { page: 1, limit: 10 }
      const empty = await listEntries(storage.read, organizationScope(orgId), query)
      expect(empty).toMatchObject({ data: [], pagination: { total: 0, totalPages: 0, nextCursor: null } })
      expect(verdictOf(await fileOf(world, orgId))).toMatchObject({
        verdict: 'sound',
        entries: 0,
        head: { seq: 3 },
      })
      await world.aged(orgId, [1, 1])
      expect(await world.seqs(orgId)).toEqual([4, 5])
      expect(verdictOf(await fileOf(world, orgId))).toMatchObject({ verdict: 'sound', entries: 2 })
      world.clock.forward(400 * day)
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 2 })
      expect((await findAnchor(storage.read, systemScope, orgId)).prunedCount).toBe(5)
    })

    it('leaves lists consistent: pages, cursors and totals match the remaining entries', async () => {
      const world = await begin()
      const { orgId, parts, storage } = world
      await world.aged(orgId, [500, 500, 500, 5, 4, 3, 2, 1])
      await pruneChain(parts, orgId, whole)
      for (const filter of [{}, { orgId }, { action: 'thing' }]) {
        for (const scope of [organizationScope(orgId), systemScope]) {
          const seqs: number[] = []
          let cursor: string | undefined
          do {
            const query = { page: 1, limit: 2, ...filter, ...(cursor !== undefined && { cursor }) }
            const { data, pagination } = await listEntries(storage.read, scope, query)
            seqs.push(...data.map(({ seq }) => seq))
            if (cursor === undefined) expect(pagination).toMatchObject({ total: 5, totalPages: 3 })
            cursor = pagination.nextCursor ?? undefined
          } while (cursor !== undefined)
          expect(seqs).toEqual([8, 7, 6, 5, 4])
          const beyond = await listEntries(storage.read, scope, { page: 4, limit: 2, ...filter })
          expect(beyond).toMatchObject({ data: [], pagination: { total: 5 } })
        }
      }
    })

    it('resumes after an interruption, batch by batch, and the chain verifies in between', async () => {
      const world = await begin()
      const { orgId, parts } = world
      await world.aged(orgId, [...Array(350).fill(500), 1])
      // Stopped after the first batch, like a crash: the lease remains.
      const stopped = { ...parts, signer: { ...parts.signer, sign: failingAfter(2, parts.signer.sign) } }
      expect(await pruneChain(stopped, orgId, whole)).toEqual({ state: 'failed', pruned: 100 })
      expect(verdictOf(await fileOf(world, orgId))).toMatchObject({ verdict: 'sound', entries: 251 })
      expect(await pruneChain(parts, orgId, { milliseconds: 0 })).toMatchObject({ state: 'more' })
      expect(verdictOf(await fileOf(world, orgId))).toMatchObject({ verdict: 'sound', head: { seq: 351 } })
      expect(await pruneChain(parts, orgId, whole)).toMatchObject({ state: 'done' })
      expect(await world.seqs(orgId)).toEqual([351])
      expect((await getPolicy(world.storage.read, systemScope, orgId)).lastError).toBeNull()
    })

    it('runs once per chain, until the lease of a dead process expires after a minute', async () => {
      const world = await begin()
      const { orgId, parts, storage, clock } = world
      await world.aged(orgId, [500, 1])
      await storage.write((tx) => acquireLease(tx, orgId, 'another', { now: clock() }))
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'busy', pruned: 0 })
      clock.forward(61)
      const both = await Promise.all([pruneChain(parts, orgId, whole), pruneChain(parts, orgId, whole)])
      expect(both.reduce((sum, { pruned }) => sum + pruned, 0)).toBe(1)
      expect(await world.seqs(orgId)).toEqual([2])
    })

    it('waits for readers of the chain, so that no reader sees a gap', async () => {
      const world = await begin()
      const { orgId, parts, clock } = world
      await world.aged(orgId, [500, 500, 1])
      const reading = chainFile(parts, systemScope, orgId, await signedChainEnd(parts, orgId))
      const pieces = [(await reading.next()).value as string]
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'read', pruned: 0 })
      for await (const piece of reading) pieces.push(piece)
      expect(verdictOf(pieces)).toMatchObject({ verdict: 'sound', entries: 3 })
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 2 })
      // A reader that disappeared does not block for long.
      await world.aged(orgId, [500])
      const left = chainFile(parts, systemScope, orgId, await signedChainEnd(parts, orgId))
      await left.next()
      clock.forward(400 * day)
      expect(await pruneChain(parts, orgId, whole)).toMatchObject({ state: 'done', pruned: 2 })
    })

    it('keeps entries that were changed after signing, and reports them', async () => {
      const world = await begin()
      const { orgId, parts, storage, warnings } = world
      await world.aged(orgId, [500, 500, 500, 1])
      await takeCheckpoint(parts, orgId)
      await unguarded(world, `update audit_logs set canonical = replace(canonical, 'number 1', 'number 7')`)
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'failed', pruned: 0 })
      expect(await world.seqs(orgId)).toEqual([1, 2, 3, 4])
      const { lastError } = await getPolicy(storage.read, systemScope, orgId)
      expect(lastError?.message).toContain('Entry 2 is not what was signed')
      expect(warnings).toHaveLength(1)
    })

    /** Runs a statement without the triggers, like an attacker who controls the database. */
    const unguarded = async ({ storage }: World, statement: string) => {
      await storage.write(async (tx) => {
        if (kind === 'sqlite') await sql.raw('drop trigger audit_logs_no_update').execute(tx)
        else await sql.raw('alter table audit_logs disable trigger audit_logs_no_change').execute(tx)
        await sql.raw(statement).execute(tx)
      })
    }
  })

  describe('the database itself', () => {
    it('refuses deletions beyond the anchor, changes of entries, and anchors that move back', async () => {
      const world = await begin()
      const { orgId, parts, storage } = world
      await world.aged(orgId, [500, 500, 3, 2])
      await pruneChain(parts, orgId, whole)
      const run = (statement: string) => storage.write((tx) => sql.raw(statement).execute(tx))
      for (const statement of [
        'delete from audit_logs',
        'delete from audit_logs where seq = 3',
        `update audit_logs set action = 'x'`,
        'update audit_anchors set seq = 1, pruned_count = 9',
        'update audit_anchors set seq = 9',
        `update audit_anchors set chain = 'system', seq = 9, pruned_count = 9`,
        'delete from audit_anchors',
        `insert into audit_anchors (chain, seq, checksum, pruned_count, note, tree, created_at)
          values ('${orgId}', 1, 'x', 1, 'x', '[]', 'x') on conflict (chain) do update set seq = 1`,
        ...(kind === 'postgres' ? ['truncate audit_logs', 'truncate audit_anchors'] : []),
        ...(kind === 'sqlite'
          ? [`insert or replace into audit_anchors values ('${orgId}', 1, 'x', 1, 'x', '[]', 'x')`]
          : []),
      ]) {
        await expect(run(statement), statement).rejects.toThrow(/append-only|only moves forward/)
      }
      expect(await world.seqs(orgId)).toEqual([3, 4])
    })

    it('refuses deletions from a chain on hold, whatever its anchor says', async () => {
      const world = await begin()
      const { orgId, storage } = world
      await world.aged(orgId, [500])
      await holdOf(world, 'Case 2026-117')
      const run = (statement: string) => storage.write((tx) => sql.raw(statement).execute(tx))
      await run(`insert into audit_anchors (chain, seq, checksum, pruned_count, note, tree, created_at)
        values ('${orgId}', 1, 'x', 1, 'x', '[]', 'x')`)
      await expect(run('delete from audit_logs')).rejects.toThrow('append-only')
    })
  })

  describe('a legal hold', () => {
    it('prevents all deletion until it is released', async () => {
      const world = await begin()
      const { orgId, parts, storage, clock } = world
      await world.aged(orgId, [500, 1])
      await holdOf(world, 'Case 2026-117')
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'held', pruned: 0 })
      expect(await listChainsToPrune(storage.read, clock(), 10)).toEqual([])
      await holdOf(world, null)
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 1 })
    })

    it('stops a running pruning before its next batch', async () => {
      const world = await begin()
      const { orgId, parts } = world
      await world.aged(orgId, Array(150).fill(500))
      const before = (await world.seqs(orgId)).length
      let isHeld = false
      // The write of the second batch waits until the hold is in place.
      const write: typeof parts.storage.write = async (work, options) => {
        if (!isHeld && (await world.seqs(orgId)).length < before) {
          isHeld = true
          await holdOf(world, 'at once')
        }
        return parts.storage.write(work, options)
      }
      const storage: typeof parts.storage = Object.create(parts.storage, { write: { value: write } })
      expect(await pruneChain({ ...parts, storage }, orgId, whole)).toEqual({ state: 'held', pruned: 100 })
      expect(await world.seqs(orgId)).toHaveLength(before - 100)
    })
  })

  describe('an archive', () => {
    it('has all entries before they are deleted, as files that verify on their own', async () => {
      const archive = memoryArchive()
      const world = await begin(archive)
      const { orgId, parts, storage, clock } = world
      await world.aged(orgId, [...Array(120).fill(500), ...Array(30).fill(200), 1])
      await policyOf(world, { archiveToS3: true })
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 120 })
      clock.forward(200 * day)
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 30 })
      expect([...archive.objects.keys()]).toEqual([archiveKey(orgId, 1, 120), archiveKey(orgId, 121, 150)])
      const verdicts = [...archive.objects.values()].map((body) => verdictOf([gunzipSync(body)]))
      expect(verdicts).toMatchObject([
        { verdict: 'sound', entries: 120, orgId, head: { seq: 120 } },
        { verdict: 'sound', entries: 30, orgId, head: { seq: 150 } },
      ])
      const trailer = JSON.parse(
        gunzipSync([...archive.objects.values()][1]!)
          .toString()
          .trimEnd()
          .split('\n')
          .at(-1)!,
      )
      expect(openCheckpoint(trailer.checkpoint, parts.signer.publicKeys)).toMatchObject({
        state: 'signed',
        checkpoint: { head: { seq: 150 }, kind: 'checkpoint' },
      })
      expect(await countArchives(storage.read, systemScope, orgId)).toEqual({ objects: 2, upTo: 150 })
    })

    it('that fails prevents deletion, records the reason, and is retried', async () => {
      const archive = memoryArchive()
      const world = await begin(archive)
      const { orgId, parts, storage, clock, warnings } = world
      await world.aged(orgId, [500, 500, 1])
      await policyOf(world, { archiveToS3: true })
      archive.fails = new ArchiveFailure('s3://logs/x: it cannot be reached (ECONNREFUSED)')
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'failed', pruned: 0 })
      expect(await world.seqs(orgId)).toEqual([1, 2, 3, 4])
      const { lastError, lastCleanupAt } = await getPolicy(storage.read, systemScope, orgId)
      expect(lastError).toEqual({
        message: 's3://logs/x: it cannot be reached (ECONNREFUSED)',
        at: clock(),
        retryAt: addSeconds(clock(), 600),
      })
      expect([lastCleanupAt, warnings.length]).toEqual([null, 1])
      expect(await listChainsToPrune(storage.read, clock(), 10)).toEqual([])
      clock.forward(601)
      expect(await listChainsToPrune(storage.read, clock(), 10)).toEqual([orgId])
      archive.fails = undefined
      await pruneDue(parts)
      await sealPending(storage)
      expect(await world.seqs(orgId), 'what was kept, and that others went').toEqual([3, 4, 5])
      expect((await getPolicy(storage.read, systemScope, orgId)).lastError).toBeNull()
    })

    it('that is not configured prevents deletion', async () => {
      const world = await begin()
      await world.aged(world.orgId, [500])
      await policyOf(world, { archiveToS3: true })
      expect(await pruneChain(world.parts, world.orgId, whole)).toEqual({ state: 'failed', pruned: 0 })
      const { lastError } = await getPolicy(world.storage.read, systemScope, world.orgId)
      expect(lastError?.message).toContain('AUDIT_ARCHIVE_S3_BUCKET')
    })

    it('receives the same object again after a crash between upload and recording', async () => {
      const archive = memoryArchive()
      const world = await begin(archive)
      const { orgId, parts, storage, clock } = world
      await world.aged(orgId, [500, 500, 364.9, 1])
      await policyOf(world, { archiveToS3: true })
      // The object is stored, but the confirmation is lost.
      const deaf = {
        put: async (object: Parameters<typeof archive.put>[0]) => {
          await archive.put(object)
          throw new ArchiveFailure('the connection was lost')
        },
      }
      expect(await pruneChain({ ...parts, archive: deaf }, orgId, whole)).toMatchObject({ state: 'failed' })
      clock.forward(day)
      expect(await pruneChain(parts, orgId, whole)).toEqual({ state: 'done', pruned: 3 })
      expect([...archive.objects.keys()]).toEqual([archiveKey(orgId, 1, 2), archiveKey(orgId, 3, 3)])
      expect(await archivedUpTo(storage.read, orgId, 0)).toBe(3)
    })
  })

  describe('the daily retention run', () => {
    it('prunes each chain once a day, with an audit entry in each', async () => {
      const world = await begin()
      const { orgId, parts, storage, clock } = world
      await world.aged(orgId, [500, 1])
      await world.aged(null, [500, 1])
      await pruneDue(parts)
      await sealPending(storage)
      const rows = await storage.read.selectFrom('audit_logs').select(['chain', 'canonical', 'seq']).execute()
      const runEntries = rows.filter(({ seq }) => seq === 3)
      expect([rows.length, runEntries.map(({ chain }) => chain).toSorted()]).toEqual([
        4,
        [orgId, 'system'].toSorted(),
      ])
      expect(JSON.parse(runEntries[0]!.canonical)).toMatchObject({
        action: 'audit.retention.run',
        actorType: 'system',
        details: { pruned: 1 },
      })
      expect(await listChainsToPrune(storage.read, clock(), 10)).toEqual([])
      clock.forward(day)
      expect((await listChainsToPrune(storage.read, clock(), 10)).toSorted()).toEqual(
        [orgId, 'system'].toSorted(),
      )
    })
  })
})

/** A signer that fails after some calls, like a process that dies. */
function failingAfter(times: number, sign: (checkpoint: never) => string) {
  let count = 0
  return (checkpoint: unknown): string => {
    count += 1
    if (count > times) throw new Error('stopped')
    return sign(checkpoint as never)
  }
}
