import { randomBytes } from 'node:crypto'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { createSigner } from '../../src/audit/checkpoints/signer.ts'
import type { Finding } from '../../src/core/finding.ts'
import { systemClock } from '../../src/core/time.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { openReadOnly, openStorage, type ReadStorage } from '../../src/storage/open.ts'
import { watchAudit } from '../audit-watch.ts'
import { type Config, existingConfig } from '../config.ts'
import * as database from '../doctor/database.ts'
import { runCheck } from '../doctor/finding.ts'
import { checkAuditChains } from '../doctor/stored.ts'
import { cipherOf } from '../secrets/cipher.ts'
import type { Env } from '../variables.ts'

/**
 * The checks of svc doctor that say something about a restored database. Those of the fleet and the queues are about the service that
 * was backed up; damaged pages on Postgres are about its server.
 */
export async function examineRestored(place: DatabaseLocation, env: Env): Promise<Finding[]> {
  const config = existingConfig({ 'data-dir': place.dataDir }, env)
  await verifyChains(place, config)
  const storage = await openReadOnly(place)
  try {
    const findings: Finding[] = []
    for (const [name, check, ms] of checksOf(storage, place, config)) {
      findings.push(...(await runCheck(name, check, ms)).findings)
    }
    return findings
  } finally {
    await storage.close()
  }
}

type Check = [name: string, run: () => Promise<Finding[]>, ms?: number]

function checksOf(storage: ReadStorage, place: DatabaseLocation, config: Config): Check[] {
  const pages: Check[] = storage.traits.hasOwnFiles
    ? [['database pages', () => database.checkIntegrity(storage), database.integrityMs]]
    : []
  return [
    ...pages,
    ['database schema', () => database.checkSchema(storage, place, [])],
    ['database', () => database.checkNotLost(storage, place.dataDir)],
    ['keys', () => database.checkKeyFingerprints(storage, config)],
    ['encrypted values', () => database.checkEncryptedValues(storage, cipherOf(config))],
    ['audit log', () => checkAuditChains(storage.heavy, systemClock())],
  ]
}

/**
 * Verifies every chain, as the service does within a day. The check of the audit log reads the verdicts. It trusts the keys of the
 * service, but signs with a key that is thrown away: a signature of the service on a restored copy would be taken for a real one.
 */
async function verifyChains(place: DatabaseLocation, { signing }: Config): Promise<void> {
  const storage = await openStorage({ ...place, postgres: { poolSize: 4, statementMs: 0 } })
  try {
    const log = pino({ enabled: false })
    const { trusted } = createSigner(storage, signing)
    const throwAway = { current: randomBytes(32), previous: undefined, isPreviousAssumed: false }
    const signer = { ...createSigner(storage, throwAway), trusted }
    const on = { storage, clock: systemClock, log, dataDir: place.dataDir, signer, metrics: new Registry() }
    const { parts } = await watchAudit(on)
    const chains = await storage.read.selectFrom('audit_heads').select('chain').execute()
    for (const { chain } of chains) await verifyStoredChain(parts, chain)
  } finally {
    await storage.close()
  }
}
