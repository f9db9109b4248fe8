import { expect, it, onTestFinished } from 'vitest'
import { openCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { signRestored } from '../../src/audit/checkpoints/restored.ts'
import { findLastCheckpoint, insertRestored } from '../../src/audit/checkpoints/store.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { openStorage } from '../../src/storage/open.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'
import { failWrites } from '../laws/failing-writes.ts'
import { cutTo, forgetSigned, happen, partsOn, seedOf, type TestParts } from './chains.ts'
import { happening } from './rows.ts'

/** How many organizations share the processes; the decision on leases has the figures for 10,000. */
const many = 24

onEveryDatabase((kind, open) => {
  /** Three processes on Postgres, one on SQLite, and the times that each has signed. */
  async function begin() {
    const database = await open()
    const own = kind === 'postgres' ? [await another(database), await another(database)] : []
    const signed: string[] = []
    const processes = [database.storage, ...own].map((storage, at) => {
      const parts = partsOn({ storage, dataDir: `${database.dataDir}/${at}` })
      const sign: TestParts['signer']['sign'] = (checkpoint) => {
        signed.push(checkpoint.orgId ?? 'system')
        return parts.signer.sign(checkpoint)
      }
      return { ...parts, signer: { ...parts.signer, sign } }
    })
    const chains = Array.from({ length: many }, () => newId())
    await database.storage.write(async (tx) => {
      for (const orgId of chains) {
        for (let n = 0; n < 3; n += 1)
          await recordAudit(tx, toDraftEntry(happening(orgId), processes[0]!.clock()))
      }
    })
    await sealPending(database.storage)
    return { storage: database.storage, processes, chains: chains.sort(), signed }
  }
  async function another({ databaseUrl, dataDir }: TestDatabase) {
    const storage = await openStorage({ databaseUrl, dataDir })
    onTestFinished(() => storage.close())
    return storage
  }
  /** Turns until there is nothing left to do; returns their failures. */
  async function finish(work: () => Promise<boolean>): Promise<unknown[]> {
    const failures: unknown[] = []
    for (let turn = 0; turn < 50; turn += 1) {
      try {
        if (!(await work())) return failures
      } catch (error) {
        failures.push(error)
      }
    }
    throw new Error('There is always more to do')
  }

  it('all processes sign and verify different organizations at once, each one once', async () => {
    const { storage, processes, chains, signed } = await begin()
    await Promise.all(processes.map((one) => finish(() => takeDueCheckpoints(one))))
    expect(signed.toSorted()).toEqual(chains)
    const rows = await storage.read
      .selectFrom('audit_checkpoints')
      .select(['chain', 'seq'])
      .orderBy('chain')
      .execute()
    expect(rows).toEqual(chains.map((chain) => ({ chain, seq: 3 })))
    expect(await storage.read.selectFrom('audit_checkpoint_claims').selectAll().execute()).toEqual([])

    await Promise.all(processes.map((one) => finish(() => verifyDue(one))))
    const verdicts = processes.flatMap((one) => one.verdicts)
    expect(verdicts.map(({ chain }) => chain).sort()).toEqual(chains)
    expect(new Set(verdicts.map(({ verdict }) => verdict))).toEqual(new Set(['sound']))
    // No process had to do all of it.
    if (kind === 'postgres')
      expect(processes.filter((one) => one.verdicts.length > 0).length).toBeGreaterThan(1)
  })

  it('an organization that cannot be signed or stored holds nobody, and is tried again after a pause', async () => {
    const { storage, processes, chains } = await begin()
    const [parts] = processes as [TestParts]
    const [cut, refused] = chains as [string, string]
    await finish(() => takeDueCheckpoints(parts))
    await cutTo(storage, cut, 2)
    for (const chain of chains.slice(1)) await happen(storage, chain, 1)
    await failWrites(storage, 'insert', 'audit_checkpoints', `new.chain = '${refused}'`)
    // Makes the shortened chain due.
    await storage.write((tx) => tx.deleteFrom('audit_checkpoints').where('chain', '=', cut).execute())
    expect(await finish(() => takeDueCheckpoints(parts))).toHaveLength(1)
    const seqs = await Promise.all(
      chains.map(async (one) => (await findLastCheckpoint(storage.read, one))?.seq),
    )
    expect(seqs).toEqual(chains.map((one) => (one === cut ? undefined : one === refused ? 3 : 4)))
    expect(parts.refused).toHaveLength(1)
    await finish(() => takeDueCheckpoints(parts))
    expect(parts.refused).toHaveLength(1)
    parts.clock.forward(121)
    expect(await finish(() => takeDueCheckpoints(parts))).toHaveLength(1)
    expect(parts.refused).toHaveLength(2)
  })

  it('a chain that a restore made shorter is signed, and the local copy of what was lost is replaced', async () => {
    const { storage, processes, chains } = await begin()
    const [parts] = processes as [TestParts]
    const [chain] = chains as [string]
    await happen(storage, chain, 2)
    await finish(() => takeDueCheckpoints(parts))
    await cutTo(storage, chain, 3)
    await forgetSigned(storage, chain)
    const found = storage.read
      .selectFrom('audit_heads')
      .select(['seq', 'checksum'])
      .where('chain', '=', chain)
    const head = await found.executeTakeFirstOrThrow()
    parts.clock.forward(1)
    const time = parts.clock()
    const backup = { madeAt: time, sha256: '0'.repeat(64) }
    const note = signRestored({ orgId: chain, time, backup, head, ahead: null }, seedOf('a'))
    await storage.write((tx) => insertRestored(tx, [{ chain, restored_at: time, note }]))
    await happen(storage, chain, 1)

    const told: unknown[] = []
    const telling = { ...parts, onRestored: (lost: object) => void told.push(lost) }
    expect(await finish(() => takeDueCheckpoints(telling))).toEqual([])
    expect(parts.refused).toEqual([])
    expect(told).toMatchObject([{ chain, signed: 5, head: { seq: 3 } }])
    const copy = openCheckpoint((await parts.localCopies.read(chain))!, [])
    expect(copy).toMatchObject({ checkpoint: { head: { seq: 4 } } })
    expect(await findLastCheckpoint(storage.read, chain)).toMatchObject({ seq: 4 })
  })

  it.each(['signs', 'verifies'])(
    'a process that is frozen while it %s does no harm when it comes back',
    async (what) => {
      const { storage, processes, chains } = await begin()
      const [frozen] = processes as [TestParts]
      const awake = partsOn({ storage, dataDir: 'unused' })
      const other = { ...awake, clock: frozen.clock, localCopies: frozen.localCopies }
      const [chain] = chains as [string]
      let isFirst = true
      // Frozen for so long after it read that another process has taken over and finished.
      const read = async (name: string) => {
        const text = await frozen.localCopies.read(name)
        if (name === chain && isFirst) {
          isFirst = false
          frozen.clock.forward(301)
          await finish(() => takeDueCheckpoints(other))
          await finish(() => verifyDue(other))
          await cutTo(storage, chain, 2)
          frozen.clock.forward(86_400)
          await finish(() => verifyDue(other))
        }
        return text
      }
      const sleeper = { ...frozen, localCopies: { ...frozen.localCopies, read } }
      await (what === 'signs' ? takeDueCheckpoints(sleeper) : verifyDue(sleeper))
      expect(isFirst).toBe(false)
      const stored = storage.read.selectFrom('audit_verdicts').select('verdict').where('chain', '=', chain)
      expect(await stored.execute()).toEqual([{ verdict: 'tampered' }])
      expect((await findLastCheckpoint(storage.read, chain))?.seq).toBe(3)
    },
  )

  it('a large chain goes on from turn to turn, and the others are verified meanwhile', async () => {
    const { storage, processes, chains } = await begin()
    const [parts] = processes as [TestParts]
    const [large] = chains as [string]
    await happen(storage, large, 3000)
    // Each piece of it is a slice of its own.
    const limits = { turnMs: 20_000, sliceMs: 0 }
    await finish(() => verifyDue(parts, limits))
    const order = parts.verdicts.map(({ chain }) => chain)
    expect(order.toSorted()).toEqual(chains)
    // It was the first to begin.
    expect(order.at(-1)).toBe(large)
    expect(parts.verdicts.at(-1)).toMatchObject({ verdict: 'sound', entries: 3003 })
    expect(await storage.read.selectFrom('audit_readings').selectAll().execute()).toEqual([])
  })
})
