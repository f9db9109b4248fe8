import { mkdirSync, rmSync } from 'node:fs'
import { Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { watchAudit } from '../../daemon/audit-watch.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { createSigner, recordKeys } from '../../src/audit/checkpoints/signer.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { newId } from '../../src/core/new-id.ts'
import { cutTo, happen, seeds } from '../audit/chains.ts'
import { inTurn } from '../databases.ts'
import { testClock } from '../harness.ts'
import { metricValues } from '../metric-values.ts'

inTurn((open) => {
  it('the watch reports tampered and unverifiable audit chains, whatever the database says', async () => {
    const { storage, dataDir } = await open()
    const clock = testClock()
    const errors: [string, unknown][] = []
    const log = {
      debug: () => {},
      warn: () => {},
      error: ({ verdict }: { verdict?: string }, text: string) => void errors.push([text, verdict]),
    }
    const on = { storage, clock, log: log as never, dataDir, metrics: new Registry() }
    await storage.write((tx) => recordKeys(tx, seeds('a'), clock()))
    const signer = createSigner(storage, seeds('a'))
    const { parts, check, stored } = watchAudit({ ...on, signer })
    const [cut, hidden] = [newId(), newId()]
    await happen(storage, cut, 9)
    await happen(storage, hidden, 3)
    await takeDueCheckpoints(parts)
    await verifyDue(parts)
    expect(await check()).toBe('ok')

    await cutTo(storage, cut, 4)
    rmSync(parts.localCopies.fileOf(hidden))
    mkdirSync(parts.localCopies.fileOf(hidden))
    clock.forward(86_401)
    await verifyDue(parts)
    expect(await check()).toBe('tampered: 1, unverifiable: 1')
    expect(errors).toContainEqual(['an audit chain was tampered with', 'tampered'])
    expect(errors).toContainEqual([
      'an audit chain could not be verified: whether it is sound is unknown',
      'unverifiable',
    ])

    const reportedVerdicts = async () => {
      await stored.refresh()
      return metricValues(stored.registry, 'svc_audit_chain_verdict')
    }
    const truth = { sound: 0, tampered: 1, unverifiable: 1 }
    expect(await reportedVerdicts()).toEqual(truth)
    await storage.write((tx) =>
      tx.updateTable('audit_verdicts').set({ verdict: 'sound', fault: null }).execute(),
    )
    expect(await check()).toBe('tampered: 1, unverifiable: 1')
    expect(await reportedVerdicts()).toEqual(truth)
    await storage.write((tx) => tx.deleteFrom('audit_verdicts').execute())
    expect(await check()).toBe('tampered: 1, unverifiable: 1')

    // A repaired chain is no longer reported.
    rmSync(parts.localCopies.fileOf(hidden), { recursive: true })
    clock.forward(3601)
    await verifyDue(parts)
    expect(await check()).toBe('tampered: 1')
  })
})
