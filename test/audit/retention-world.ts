import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { localCopiesIn } from '../../src/audit/checkpoints/local-copies.ts'
import { createSigner } from '../../src/audit/checkpoints/signer.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import type { RetentionDependencies } from '../../src/audit/retention/jobs.ts'
import type { Archive } from '../../src/audit/retention/ports.ts'
import { chainOf, toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds } from '../../src/core/time.ts'
import type { TestDatabase } from '../databases.ts'
import { testClock } from '../harness.ts'
import { happening } from './rows.ts'

export const day = 86_400

/** The parts of retention on a database, without a service. */
export function retentionOn({ storage, dataDir }: TestDatabase, archive?: Archive) {
  const clock = testClock()
  const warnings: unknown[] = []
  const parts: RetentionDependencies = {
    storage,
    clock,
    archive,
    signer: createSigner(storage, {
      current: randomBytes(32),
      previous: undefined,
      isPreviousAssumed: false,
    }),
    localCopies: localCopiesIn(join(dataDir, 'checkpoints')),
    onRefusal: () => {},
    log: { warn: (...warning: unknown[]) => void warnings.push(warning) } as never,
  }
  /** Adds entries of the given ages in days, in this order. */
  const aged = async (orgId: string | null, ages: readonly number[]) => {
    await storage.write(async (tx) => {
      for (const [n, age] of ages.entries()) {
        const draft = toDraftEntry(
          happening(orgId, { resourceName: `number ${n}` }),
          addSeconds(clock(), -age * day),
        )
        await recordAudit(tx, draft)
      }
    })
    await sealPending(storage)
  }
  const seqs = async (orgId: string | null): Promise<number[]> => {
    const rows = storage.read.selectFrom('audit_logs').select('seq').where('chain', '=', chainOf(orgId))
    return (await rows.orderBy('seq').execute()).map(({ seq }) => seq)
  }
  return { parts, clock, warnings, aged, seqs, storage, orgId: newId() }
}

/** An archive in memory. */
export function memoryArchive(): Archive & { objects: Map<string, Buffer>; fails: Error | undefined } {
  const objects = new Map<string, Buffer>()
  return {
    objects,
    fails: undefined,
    async put({ key, body }) {
      if (this.fails) throw this.fails
      objects.set(key, Buffer.from(body))
    },
  }
}
