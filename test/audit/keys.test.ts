import { describe, expect, it } from 'vitest'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { openCheckpoint, openSuccession } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { createSigner, recordKeys, type SigningSeeds } from '../../src/audit/checkpoints/signer.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Storage } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { happen, partsOn, seeds } from './chains.ts'

const at = (day: number) => `2026-03-0${day}T12:00:00.000Z`
const start = (storage: Storage, given: SigningSeeds, day: number) =>
  storage.write((tx) => recordKeys(tx, given, at(day)))
const publicKey = (letter: string) => createSigner({} as Storage, seeds(letter)).publicKeys[0]!

inTurn((open) => {
  describe('the signing keys', () => {
    it('succeed one another, so that the newest vouches for what the oldest signed', async () => {
      const { storage } = await open()
      expect(await start(storage, seeds('a'), 1)).toEqual([])
      expect(await start(storage, seeds('b', 'a'), 2)).toEqual([])
      expect(await start(storage, seeds('c', 'b'), 3)).toEqual([])
      const signer = createSigner(storage, seeds('c'))
      expect(await signer.trusted()).toEqual([publicKey('c'), publicKey('b'), publicKey('a')])
      expect(await signer.successions()).toHaveLength(2)
    })

    it('are recorded once, even by processes that start at the same time', async () => {
      const { storage } = await open()
      await start(storage, seeds('a'), 1)
      await Promise.all([1, 2, 3].map(() => start(storage, seeds('b', 'a'), 2)))
      await start(storage, seeds('b'), 3)
      const signer = createSigner(storage, seeds('b'))
      expect(await signer.successions()).toHaveLength(1)
      expect(await signer.trusted()).toEqual([publicKey('b'), publicKey('a')])
    })

    it('of the past are reported when no succession leads to them', async () => {
      const { storage } = await open()
      await start(storage, seeds('a'), 1)
      expect(await start(storage, seeds('b'), 2)).toEqual([publicKey('a').toString('base64')])
      expect(await createSigner(storage, seeds('b')).trusted()).toEqual([publicKey('b')])
    })

    it('that are only assumed as previous count only if they have signed here', async () => {
      const { storage } = await open()
      const assumed = { ...seeds('b', 'a'), isPreviousAssumed: true }
      await start(storage, assumed, 1)
      expect(await createSigner(storage, assumed).trusted()).toEqual([publicKey('b')])
      const { storage: other } = await open()
      await start(other, seeds('a'), 1)
      await start(other, assumed, 2)
      expect(await createSigner(other, assumed).trusted()).toEqual([publicKey('b'), publicKey('a')])
    })

    it('can be announced before they sign, and never precede the key they follow', async () => {
      const { storage } = await open()
      await start(storage, seeds('a'), 1)
      await start(storage, seeds('a', 'b'), 2)
      expect(await createSigner(storage, seeds('a', 'b')).successions()).toEqual([])
      await start(storage, seeds('b', 'a'), 3)
      const after = await createSigner(storage, seeds('b', 'a')).successions()
      expect(after.map((note) => openSuccession(note)!.to)).toEqual([publicKey('b')])
      // Other processes may still restart with the old configuration.
      expect(await start(storage, seeds('a', 'b'), 4)).toEqual([])
      expect(await createSigner(storage, seeds('a', 'b')).successions()).toEqual(after)
      expect(await createSigner(storage, seeds('a')).trusted()).toEqual([publicKey('a'), publicKey('b')])
    })

    it('in use elsewhere do not make a chain unsound for a process that does not have them yet', async () => {
      const parts = partsOn(await open())
      await start(parts.storage, seeds('a'), 1)
      const org = newId()
      await happen(parts.storage, org, 4)
      await takeCheckpoint(parts, org)
      const ahead = { ...parts, signer: createSigner(parts.storage, seeds('b', 'a')) }
      await start(parts.storage, seeds('b', 'a'), 2)
      expect(await verifyStoredChain(ahead, org)).toMatchObject({ verdict: 'sound' })
      await happen(parts.storage, org, 4)
      await takeCheckpoint(ahead, org)
      for (const one of [parts, ahead, parts]) {
        await verifyDue(one)
        expect(await verifyStoredChain(one, org)).toMatchObject({ verdict: 'sound' })
      }
      expect(parts.refused).toEqual([])
    })

    it('cannot be forged by a row in the database', async () => {
      const { storage } = await open()
      await start(storage, seeds('a'), 1)
      const forged = { public_key: publicKey('x').toString('base64'), succession: null, created_at: at(2) }
      await storage.write((tx) => tx.insertInto('audit_keys').values(forged).execute())
      expect(await createSigner(storage, seeds('a')).trusted()).toEqual([publicKey('a')])
    })

    it('can change without a break in the signed history', async () => {
      const parts = partsOn(await open())
      const org = newId()
      await happen(parts.storage, org, 4)
      const first = await takeCheckpoint(parts, org)
      const rotated = { ...parts, signer: createSigner(parts.storage, seeds('b', 'a')) }
      const second = await takeCheckpoint(rotated, org)
      expect(second.checkpoint.root).toEqual(first.checkpoint.root)
      expect(openCheckpoint(second.note, [publicKey('b')]).state).toBe('signed')
    })
  })
})
