import { describe, expect, it } from 'vitest'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { countVerdicts } from '../../src/audit/checkpoints/verdicts.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Storage } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { cutTo, forgetSigned, happen, partsOn, rechained, unguarded } from './chains.ts'

inTurn((open) => {
  const org = newId()
  const begin = async (count: number) => {
    const parts = partsOn(await open())
    await happen(parts.storage, org, count)
    await takeCheckpoint(parts, org)
    return { parts, storage: parts.storage }
  }
  const setLeaf = (storage: Storage, idx: number, index: number) =>
    storage.write(async (tx) => {
      const at = tx.selectFrom('audit_tiles').select('hashes').where('level', '=', 0).where('idx', '=', idx)
      const hashes = Buffer.from((await at.executeTakeFirstOrThrow()).hashes, 'base64')
      hashes[index * 32]! ^= 1
      const changed = { hashes: hashes.toString('base64') }
      await tx.updateTable('audit_tiles').set(changed).where('level', '=', 0).where('idx', '=', idx).execute()
    })

  describe('the verification of a stored chain', () => {
    it('finds an unchanged chain sound, including entries that are not signed yet', async () => {
      const { parts, storage } = await begin(600)
      await happen(storage, org, 9)
      expect(await verifyStoredChain(parts, org)).toEqual({ chain: org, verdict: 'sound', entries: 609 })
      expect(await countVerdicts(storage.read)).toEqual([{ verdict: 'sound', count: 1, last: parts.clock() }])
    })

    it('names a signed entry that was changed', async () => {
      const { parts, storage } = await begin(20)
      await unguarded(storage, (tx) =>
        tx.updateTable('audit_logs').set({ action: 'no.thing' }).where('seq', '=', 4).execute(),
      )
      const verdict = await verifyStoredChain(parts, org)
      expect(verdict).toMatchObject({ verdict: 'tampered', fault: { kind: 'altered', seq: 4 }, entries: 3 })
      expect(parts.verdicts).toEqual([verdict])
      expect(parts.refused).toEqual([])
      expect(await countVerdicts(storage.read)).toMatchObject([{ verdict: 'tampered', count: 1 }])
    })

    it('detects a consistent chain that differs from what was signed', async () => {
      const { parts, storage } = await begin(20)
      await rechained(storage, org, 15)
      await forgetSigned(storage, org)
      expect(await verifyStoredChain(parts, org)).toMatchObject({
        verdict: 'tampered',
        fault: { kind: 'rewritten', seq: 20 },
      })
      expect(parts.refused).toHaveLength(1)
    })

    it('detects entries missing at its end', async () => {
      const { parts, storage } = await begin(20)
      await cutTo(storage, org, 15)
      await forgetSigned(storage, org)
      expect(await verifyStoredChain(parts, org)).toMatchObject({
        verdict: 'tampered',
        fault: { kind: 'truncated' },
      })
    })

    it('detects a changed leaf in tiles that no root is computed from any more', async () => {
      const { parts, storage } = await begin(600)
      await setLeaf(storage, 0, 17)
      expect(await takeCheckpoint(parts, org)).toMatchObject({ checkpoint: { head: { seq: 600 } } })
      expect(await verifyStoredChain(parts, org)).toMatchObject({
        verdict: 'tampered',
        fault: { kind: 'rewritten', seq: 256 },
      })
    })
  })

  describe('the daily verification', () => {
    it('checks each chain once a day, and a faulty one every hour', async () => {
      const { parts, storage } = await begin(5)
      await happen(storage, null, 2)
      const turns = async () => {
        parts.verdicts.length = 0
        await verifyDue(parts)
        return parts.verdicts.map(({ chain }) => chain).sort()
      }
      expect(await turns()).toEqual([org, 'system'].sort())
      expect(await turns()).toEqual([])
      parts.clock.forward(3600)
      expect(await turns()).toEqual([])
      await cutTo(storage, org, 3)
      parts.clock.forward(86_400 - 3600)
      expect(await turns()).toEqual([org, 'system'].sort())
      parts.clock.forward(3600)
      expect(await turns()).toEqual([org])
    })

    it('reports a chain that cannot be verified, and verifies the others', async () => {
      const { parts, storage } = await begin(5)
      const orgs = [org, newId(), newId()].sort()
      for (const orgId of orgs) await happen(storage, orgId, 2)
      const broken = orgs[1]!
      // For example because of file permissions.
      const read = async (chain: string) => {
        if (chain === broken) throw new Error('permission denied')
        return parts.localCopies.read(chain)
      }
      await verifyDue({ ...parts, localCopies: { ...parts.localCopies, read } })
      const found = parts.verdicts.map(({ chain, verdict }) => [chain, verdict])
      expect(found.sort()).toEqual(orgs.map((it) => [it, it === broken ? 'unverifiable' : 'sound']))
      const { fault } = parts.verdicts.find(({ chain }) => chain === broken)!
      expect(fault).toMatchObject({
        kind: 'unreadable',
        message: expect.stringContaining('permission denied'),
      })
      const stored = await countVerdicts(storage.read)
      expect(stored).toContainEqual(expect.objectContaining({ verdict: 'unverifiable', count: 1 }))
    })

    it('is done by only one of two processes', async () => {
      const { parts, storage } = await begin(5)
      const other = partsOn({ storage, dataDir: 'unused' })
      const both = { ...other, localCopies: parts.localCopies }
      await Promise.all([verifyDue(parts), verifyDue(both)])
      expect([...parts.verdicts, ...other.verdicts]).toHaveLength(1)
    })
  })
})
