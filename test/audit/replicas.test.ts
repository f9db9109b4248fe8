import { expect, it } from 'vitest'
import { type Checkpoint, openCheckpoint, treeHeadOf } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import {
  consistencySpans,
  Frontier,
  isConsistent,
  leafHash,
  spanHash,
} from '../../src/audit/checkpoints/merkle-tree.ts'
import { frontierAt, nodeReader } from '../../src/audit/checkpoints/store.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { newId } from '../../src/core/new-id.ts'
import { openStorage } from '../../src/storage/open.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { happen, partsOn } from './chains.ts'

it('two replicas that sign under concurrent writes build one tree with consistent checkpoints', async () => {
  const database = await openMigrated('postgres')
  const { databaseUrl } = database
  const folder = await temporaryFolder()
  const second = await openStorage({ dataDir: folder, databaseUrl })
  const one = partsOn(database)
  const other = partsOn({ storage: second, dataDir: folder })
  const org = newId()
  const taken: Checkpoint[] = []
  try {
    const write = async () => {
      for (let n = 0; n < 8; n += 1) await happen(n % 2 ? second : database.storage, org, 30)
    }
    const sign = async (parts: typeof one) => {
      for (let n = 0; n < 8; n += 1) taken.push((await takeCheckpoint(parts, org)).checkpoint)
    }
    await Promise.all([write(), write(), sign(one), sign(one), sign(other), sign(other)])
    await sealPending(second)
    for (const parts of [one, other]) taken.push((await takeCheckpoint(parts, org)).checkpoint)
    expect([...one.refused, ...other.refused]).toEqual([])

    const entries = await database.storage.read
      .selectFrom('audit_logs')
      .select('canonical')
      .where('chain', '=', org)
      .orderBy('seq')
      .execute()
    expect(entries).toHaveLength(480)
    const tree = new Frontier()
    const roots = new Map([[0, tree.root()]])
    for (const { canonical } of entries) {
      tree.push(leafHash(canonical))
      roots.set(tree.size, tree.root())
    }
    for (const { head, root } of taken) expect(root).toEqual(roots.get(head.seq))
    expect((await frontierAt(second.read, org, 480)).root()).toEqual(tree.root())

    const read = nodeReader(second.read, org)
    const sorted = taken.filter(({ head }) => head.seq > 0).sort((a, b) => a.head.seq - b.head.seq)
    const newest = sorted.at(-1)!
    expect(newest.head.seq).toBe(480)
    for (const older of sorted) {
      const path = await Promise.all(
        consistencySpans(older.head.seq, 480).map((span) => spanHash(read, span)),
      )
      expect(isConsistent(treeHeadOf(older), treeHeadOf(newest), path)).toBe(true)
    }
    const outside = (await other.localCopies.read(org))!
    expect(openCheckpoint(outside, other.signer.publicKeys)).toMatchObject({
      checkpoint: { head: { seq: 480 } },
    })
  } finally {
    await second.close()
  }
})
