import { stat, writeFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { openCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { Frontier, leafHash } from '../../src/audit/checkpoints/merkle-tree.ts'
import { findLastCheckpoint, listCheckpoints } from '../../src/audit/checkpoints/store.ts'
import { recordAudit } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { inTurn } from '../databases.ts'
import { cutTo, forgetSigned, happen, partsOn, rechained, unguarded } from './chains.ts'
import { happening } from './rows.ts'

inTurn((open) => {
  const org = newId()
  const begin = async (count = 10) => {
    const parts = partsOn(await open())
    await happen(parts.storage, org, count)
    const first = await takeCheckpoint(parts, org)
    return { parts, storage: parts.storage, first }
  }

  describe('a checkpoint', () => {
    it('is signed by the service, over all entries', async () => {
      const { parts, storage, first } = await begin(300)
      const rows = storage.read.selectFrom('audit_logs').select(['canonical', 'checksum'])
      const entries = await rows.where('chain', '=', org).orderBy('seq').execute()
      const tree = new Frontier()
      for (const { canonical } of entries) tree.push(leafHash(canonical))
      expect(openCheckpoint(first.note, parts.signer.publicKeys)).toMatchObject({
        state: 'signed',
        checkpoint: {
          orgId: org,
          kind: 'checkpoint',
          head: { seq: 300, checksum: entries.at(-1)!.checksum },
          root: tree.root(),
          time: parts.clock(),
        },
      })
      expect(await findLastCheckpoint(storage.read, org)).toMatchObject({ seq: 300, note: first.note })
      expect(await parts.localCopies.read(org)).toBe(first.note)
      expect((await stat(parts.localCopies.fileOf(org))).mode & 0o777).toBe(0o600)
    })

    it('of an empty chain has size 0', async () => {
      const parts = partsOn(await open())
      const { checkpoint } = await takeCheckpoint(parts, newId())
      expect(checkpoint).toMatchObject({ head: { seq: 0, checksum: '0'.repeat(64) } })
    })

    it('seals pending entries first', async () => {
      const { parts, storage } = await begin()
      await storage.write((tx) => happenLater(tx))
      expect((await takeCheckpoint(parts, org)).checkpoint.head.seq).toBe(11)
    })

    it('of an idle chain is reused for an hour, then signed again', async () => {
      const { parts, storage, first } = await begin()
      parts.clock.forward(3599)
      expect((await takeCheckpoint(parts, org)).note).toBe(first.note)
      parts.clock.forward(1)
      const later = await takeCheckpoint(parts, org)
      expect(later.checkpoint).toEqual({ ...first.checkpoint, time: parts.clock() })
      expect(await listCheckpoints(storage.read, org, 10)).toMatchObject([{ seq: 10, note: later.note }])
    })

    it('is taken of each chain that grew, and of no other', async () => {
      const { parts, storage, first } = await begin()
      await happen(storage, null, 3)
      parts.clock.forward(7200)
      await takeDueCheckpoints(parts)
      expect(await findLastCheckpoint(storage.read, 'system')).toMatchObject({ seq: 3 })
      expect(await listCheckpoints(storage.read, org, 10)).toMatchObject([{ note: first.note }])
    })

    it('continues from an older local copy after a crash before that was written', async () => {
      const { parts, storage, first } = await begin()
      await happen(storage, org, 5)
      const second = await takeCheckpoint(parts, org)
      await parts.localCopies.write(org, first.note)
      expect(await takeCheckpoint(parts, org)).toEqual(second)
      expect(await parts.localCopies.read(org)).toBe(second.note)
    })
  })

  describe('no checkpoint is signed of a chain', () => {
    const refusal = async (parts: ReturnType<typeof partsOn>) => {
      const before = await parts.localCopies.read(org)
      const error = await takeCheckpoint(parts, org).catch((caught) => caught)
      expect(error).toMatchObject({ name: 'HistoryChangedError', code: 'audit_history_changed', status: 409 })
      expect(parts.refused.at(-1)).toEqual(error.change)
      expect(await parts.localCopies.read(org)).toBe(before)
      return error.change
    }

    it('whose newest entries are gone', async () => {
      const { parts, storage } = await begin()
      await cutTo(storage, org, 7)
      expect(await refusal(parts)).toMatchObject({ chain: org, kind: 'truncated', signed: 10, found: 7 })
    })

    it('whose newest entries are gone, with all checkpoints of them in the database', async () => {
      const { parts, storage } = await begin()
      await cutTo(storage, org, 7)
      await forgetSigned(storage, org)
      expect(await refusal(parts)).toMatchObject({ kind: 'truncated', signed: 10, found: 7 })
    })

    it('that is an older copy which has grown since', async () => {
      const { parts, storage } = await begin()
      await cutTo(storage, org, 7)
      await forgetSigned(storage, org)
      await happen(storage, org, 9)
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten', signed: 10, found: 16 })
    })

    it('with a changed signed entry and the rest relinked', async () => {
      const { parts, storage } = await begin()
      await happen(storage, org, 5)
      await rechained(storage, org, 4)
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten', signed: 10, found: 15 })
    })

    it('with a changed signed entry, the rest relinked and the tree rebuilt', async () => {
      const { parts, storage } = await begin()
      await rechained(storage, org, 4)
      await forgetSigned(storage, org)
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten', signed: 10, found: 10 })
    })

    it('with an entry that was changed before it was signed', async () => {
      const { parts, storage } = await begin()
      await happen(storage, org, 5)
      await unguarded(storage, (tx) =>
        tx
          .updateTable('audit_logs')
          .set({ canonical: '{}' })
          .where('chain', '=', org)
          .where('seq', '=', 13)
          .execute(),
      )
      const change = await refusal(parts)
      expect(change).toMatchObject({ kind: 'altered', signed: 10, found: 15 })
      expect(change.why).toContain('Entry 13')
    })

    it('with an entry that is missing before it was signed', async () => {
      const { parts, storage } = await begin()
      await happen(storage, org, 5)
      await unguarded(storage, (tx) =>
        tx.deleteFrom('audit_logs').where('chain', '=', org).where('seq', '=', 12).execute(),
      )
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten', why: 'Entry 12 is missing' })
    })

    it('with a changed tree', async () => {
      const { parts, storage } = await begin()
      await storage.write((tx) =>
        tx
          .updateTable('audit_tiles')
          .set({ hashes: Buffer.alloc(320).toString('base64') })
          .execute(),
      )
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten', signed: 10, found: 10 })
    })

    it('with an unreadable local checkpoint', async () => {
      const { parts } = await begin()
      await writeFile(parts.localCopies.fileOf(org), 'nothing of the kind')
      expect(await refusal(parts)).toMatchObject({ kind: 'rewritten' })
    })

    it('and the next chain still gets its checkpoint', async () => {
      const { parts, storage } = await begin()
      await cutTo(storage, org, 7)
      await forgetSigned(storage, org)
      await happen(storage, null, 2)
      await takeDueCheckpoints(parts)
      expect(parts.refused).toMatchObject([{ chain: org }])
      expect(await findLastCheckpoint(storage.read, 'system')).toMatchObject({ seq: 2 })
    })
  })

  const happenLater = async (tx: Parameters<typeof recordAudit>[0]) =>
    recordAudit(tx, toDraftEntry(happening(org), '2026-03-01T12:00:00.000Z'))
})
