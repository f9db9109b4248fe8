import { expect, it } from 'vitest'
import { queueMetrics } from '../../daemon/queue-watch.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { recordKeys } from '../../src/audit/checkpoints/signer.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { partsOn, seeds } from '../audit/chains.ts'
import { happening } from '../audit/rows.ts'
import { inTurn } from '../databases.ts'
import { metricValues } from '../metric-values.ts'

inTurn((open) => {
  async function stage() {
    const { storage, dataDir } = await open()
    const parts = partsOn({ storage, dataDir })
    const { clock } = parts
    await storage.write((tx) => recordKeys(tx, seeds('a'), clock()))
    const settings = { checkpointSeconds: 3600, auditRetentionOn: false }
    const { registry, refresh } = queueMetrics({ storage, clock }, settings)
    const happens = async (chain: string) => {
      const entry = toDraftEntry(happening(chain, { resourceName: 'thing' }), clock())
      await storage.write((tx) => recordAudit(tx, entry))
      await sealPending(storage)
    }
    /** An age, and how much waits in a queue. */
    const told = async (age: string, queue: string) => {
      await refresh()
      const { '': seconds } = await metricValues(registry, age)
      const [waiting, lag] = await Promise.all(
        ['svc_queue_backlog', 'svc_queue_lag_seconds'].map(
          async (name) => (await metricValues(registry, name))[queue],
        ),
      )
      return { seconds, waiting, lag }
    }
    return { parts, clock, happens, told, first: newId(), second: newId() }
  }

  it('the age of the oldest verdict is that of the chain which was verified longest ago', async () => {
    const { parts, clock, happens, told, first, second } = await stage()
    const verdicts = () => told('svc_audit_oldest_verdict_age_seconds', 'audit verification')
    const verify = async (chain: string) => {
      await takeCheckpoint(parts, chain)
      await verifyDue(parts)
    }
    expect(await verdicts()).toMatchObject({ seconds: 0, waiting: 0 })
    await happens(first)
    clock.forward(20)
    // Without a verdict, a chain counts from its first entry.
    expect(await verdicts()).toMatchObject({ seconds: 20, waiting: 1 })
    await verify(first)
    expect(await verdicts()).toMatchObject({ seconds: 0, waiting: 0 })
    clock.forward(86_000)
    await happens(second)
    await verify(second)
    expect(await verdicts()).toMatchObject({ seconds: 86_000, waiting: 0 })
    clock.forward(500)
    expect(await verdicts()).toMatchObject({ seconds: 86_500, waiting: 1 })
    await verify(first)
    expect(await verdicts()).toMatchObject({ seconds: 500, waiting: 0 })
  })

  it('the age of the oldest due checkpoint is that of the first entry which waits for one', async () => {
    const { parts, clock, happens, told, first, second } = await stage()
    const checkpoints = () => told('svc_audit_oldest_due_checkpoint_age_seconds', 'audit checkpoints')
    await happens(first)
    await takeCheckpoint(parts, first)
    clock.forward(600)
    await happens(first)
    clock.forward(100)
    await happens(first)
    // The last one is not old enough: none is due.
    expect(await checkpoints()).toEqual({ seconds: 0, waiting: 0, lag: 0 })
    clock.forward(2950)
    await happens(second)
    clock.forward(50)
    // The first one was due when its checkpoint was an hour old, the second one with its first entry.
    expect(await checkpoints()).toEqual({ seconds: 3100, waiting: 2, lag: 100 })
    await takeCheckpoint(parts, first)
    expect(await checkpoints()).toEqual({ seconds: 50, waiting: 1, lag: 50 })
    await takeCheckpoint(parts, second)
    expect(await checkpoints()).toEqual({ seconds: 0, waiting: 0, lag: 0 })
    clock.forward(4000)
    await happens(first)
    clock.forward(5)
    // Its checkpoint has rested long before.
    expect(await checkpoints()).toEqual({ seconds: 5, waiting: 1, lag: 5 })
  })
})
