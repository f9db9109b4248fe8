import { join } from 'node:path'
import type { Logger } from 'pino'
import { Counter, Gauge, Registry } from 'prom-client'
import type { CheckpointDependencies } from '../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../src/audit/checkpoints/local-copies.ts'
import type { Signer } from '../src/audit/checkpoints/signer.ts'
import { countVerdicts, listFaults } from '../src/audit/checkpoints/verdicts.ts'
import { type VerificationDependencies, VerificationState } from '../src/audit/checkpoints/verification.ts'
import { countPending, sumHeads } from '../src/audit/outbox.ts'
import { type Clock, secondsBetween } from '../src/core/time.ts'
import type { Storage } from '../src/storage/open.ts'
import type { StoredMetrics } from './metrics.ts'

type On = {
  storage: Storage
  clock: Clock
  log: Logger
  dataDir: string
  signer: Signer
  metrics: Registry
}

export type AuditWatch = {
  parts: CheckpointDependencies & VerificationDependencies
  /** For /health/ready, which is public: the number of chains that are not sound, without their names. */
  check(): Promise<string>
  stored: StoredMetrics
}

/** Entries that are counted: more look like as many. */
const maxCounted = 10_000

const messages = {
  tampered: 'an audit chain was tampered with',
  unverifiable: 'an audit chain could not be verified: whether it is sound is unknown',
}

/** Keeps what signing and verifying find for those who watch the service. */
export function watchAudit({ storage, clock, log, dataDir, signer, metrics }: On): AuditWatch {
  const verified = new Counter({
    name: 'svc_audit_verified_entries_total',
    help: 'Audit entries that this process has verified.',
    registers: [metrics],
  })
  const refused = new Counter({
    name: 'svc_audit_checkpoint_refused_total',
    help: 'Checkpoints that this process did not sign, because of what was signed before.',
    registers: [metrics],
  })
  const registry = new Registry()
  const verdicts = new Gauge({
    name: 'svc_audit_chain_verdict',
    help: 'Audit chains by what their last verification found.',
    labelNames: ['verdict'],
    registers: [registry],
  })
  const lastVerified = new Gauge({
    name: 'svc_audit_last_verification_timestamp_seconds',
    help: 'When an audit chain was last verified.',
    registers: [registry],
  })
  const sealed = new Gauge({
    name: 'svc_audit_sealed_entries',
    help: 'Audit entries sealed so far, in all chains.',
    registers: [registry],
  })
  const chains = new Gauge({
    name: 'svc_audit_chains',
    help: 'Audit chains that have entries.',
    registers: [registry],
  })
  const unsealed = new Gauge({
    name: 'svc_audit_unsealed_entries',
    help: `Audit entries that wait to be sealed; ${maxCounted} stands for as many or more.`,
    registers: [registry],
  })
  const unsealedAge = new Gauge({
    name: 'svc_audit_oldest_unsealed_age_seconds',
    help: 'Age of the oldest item that waits; 0: none waits.',
    registers: [registry],
  })
  const memory = new VerificationState()
  const localCopies = localCopiesIn(join(dataDir, 'checkpoints'))
  const parts: AuditWatch['parts'] = {
    storage,
    clock,
    signer,
    localCopies,
    memory,
    onRefusal: (change) => {
      refused.inc()
      memory.recordVerdict({ chain: change.chain, verdict: 'tampered' }, clock())
      const text = 'an audit chain is not signed: it does not contain the entries that were signed before'
      log.error({ ...change, lastSigned: localCopies.fileOf(change.chain) }, text)
    },
    onRestored: ({ chain, time, backup, head, signed }) => {
      const entries = { from: head.seq + 1, to: signed }
      log.warn(
        { chain, restored: time, backup, lost: entries },
        'entries of an audit chain were lost by a restore',
      )
    },
    onVerdict: ({ chain, verdict, fault, entries }) => {
      verified.inc(entries)
      if (verdict === 'sound') log.debug({ chain, entries }, 'an audit chain was verified')
      else log.error({ chain, verdict, fault, entries }, messages[verdict])
    },
  }
  /** The chains that are not sound. Findings of this process stay, even if the database is changed later. */
  const faultsNow = async () => {
    const faults = new Map((await listFaults(storage.read)).map(({ chain, verdict }) => [chain, verdict]))
    const stored = faults.size
    for (const [chain, { verdict }] of memory.faults) faults.set(chain, verdict)
    const count = (wanted: string) => [...faults.values()].filter((verdict) => verdict === wanted).length
    return { tampered: count('tampered'), unverifiable: count('unverifiable'), hidden: faults.size - stored }
  }
  return {
    parts,
    check: async () => {
      const { tampered, unverifiable } = await faultsNow()
      const found = [
        ...(tampered > 0 ? [`tampered: ${tampered}`] : []),
        ...(unverifiable > 0 ? [`unverifiable: ${unverifiable}`] : []),
      ]
      return found.join(', ') || 'ok'
    },
    stored: {
      registry,
      refresh: async () => {
        const counts = await countVerdicts(storage.heavy)
        const { tampered, unverifiable, hidden } = await faultsNow()
        const sound = counts.find((one) => one.verdict === 'sound')?.count ?? 0
        verdicts.set({ verdict: 'sound' }, Math.max(0, sound - hidden))
        verdicts.set({ verdict: 'tampered' }, tampered)
        verdicts.set({ verdict: 'unverifiable' }, unverifiable)
        lastVerified.set(Math.max(0, ...counts.map((one) => Date.parse(one.last) / 1000)))
        const heads = await sumHeads(storage.heavy)
        chains.set(heads.chains)
        sealed.set(heads.entries)
        const { count, oldest } = await countPending(storage.heavy, maxCounted)
        unsealed.set(count)
        unsealedAge.set(oldest === undefined ? 0 : Math.max(0, secondsBetween(oldest, clock())))
      },
    },
  }
}
