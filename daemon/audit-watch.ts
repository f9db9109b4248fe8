import { join } from 'node:path'
import type { Logger } from 'pino'
import { Counter, Gauge, Registry } from 'prom-client'
import type { CheckpointDependencies } from '../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../src/audit/checkpoints/local-copies.ts'
import { createSigner, recordKeys, type SigningSeeds } from '../src/audit/checkpoints/signer.ts'
import { countVerdicts, listFaults } from '../src/audit/checkpoints/verdicts.ts'
import { type VerificationDependencies, VerificationState } from '../src/audit/checkpoints/verification.ts'
import { countPending } from '../src/audit/outbox.ts'
import { type Clock, secondsBetween } from '../src/core/time.ts'
import type { Storage } from '../src/storage/open.ts'
import type { StoredMetrics } from './metrics.ts'

type On = {
  storage: Storage
  clock: Clock
  log: Logger
  dataDir: string
  signing: SigningSeeds
  metrics: Registry
}

export type AuditWatch = {
  parts: CheckpointDependencies & VerificationDependencies
  /** For /health/ready, which is public: the number of chains that are not sound, without their names. */
  check(): Promise<string>
  stored: StoredMetrics
}

/** Entries that are counted: more look like as many. */
const mostCounted = 10_000

const told = {
  tampered: 'an audit chain was tampered with',
  unverifiable: 'an audit chain could not be verified: whether it is sound is unknown',
}

/** Writes the signing key down, and keeps what signing and verifying find for those who watch the service. */
export async function watchAudit({
  storage,
  clock,
  log,
  dataDir,
  signing,
  metrics,
}: On): Promise<AuditWatch> {
  const unlinked = await storage.write((tx) => recordKeys(tx, signing, clock()))
  if (unlinked.length > 0) {
    const text =
      'The audit log was signed with another key before, which AUDIT_SIGNING_KEY_PREVIOUS does not contain: ' +
      'its signatures verify only with its own public key'
    log.warn({ publicKeys: unlinked }, text)
  }
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
  const unsealed = new Gauge({
    name: 'svc_audit_unsealed_entries',
    help: `Audit entries that wait to be sealed; ${mostCounted} stands for as many or more.`,
    registers: [registry],
  })
  const unsealedAge = new Gauge({
    name: 'svc_audit_oldest_unsealed_age_seconds',
    help: 'For how long the first of them has waited; 0: none does.',
    registers: [registry],
  })
  const memory = new VerificationState()
  const localCopies = localCopiesIn(join(dataDir, 'checkpoints'))
  const parts: AuditWatch['parts'] = {
    storage,
    clock,
    signer: createSigner(storage, signing),
    localCopies,
    memory,
    onRefusal: (change) => {
      refused.inc()
      memory.recordVerdict({ chain: change.chain, verdict: 'tampered' }, clock())
      const text = 'an audit chain is not signed: it does not contain the entries that were signed before'
      log.error({ ...change, lastSigned: localCopies.fileOf(change.chain) }, text)
    },
    onVerdict: ({ chain, verdict, fault, entries }) => {
      verified.inc(entries)
      if (verdict === 'sound') log.debug({ chain, entries }, 'an audit chain was verified')
      else log.error({ chain, verdict, fault, entries }, told[verdict])
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
        const { count, oldest } = await countPending(storage.heavy, mostCounted)
        unsealed.set(count)
        unsealedAge.set(oldest === undefined ? 0 : Math.max(0, secondsBetween(oldest, clock())))
      },
    },
  }
}
