import { SetupError } from '../../src/core/errors.ts'
import { type Finding, failed } from '../../src/core/finding.ts'
import { systemClock } from '../../src/core/time.ts'
import {
  databaseExists,
  openReadOnly,
  type ReadStorage,
  type StorageOptions,
} from '../../src/storage/open.ts'
import { upkeepOf } from '../../src/storage/upkeep/upkeep.ts'
import { type Config, databaseOf, dataDirOf, existingConfig } from '../config.ts'
import { cipherOf } from '../secrets/cipher.ts'
import type { Env } from '../variables.ts'
import { checkBackups } from './backups.ts'
import * as database from './database.ts'
import { type Repair, runCheck } from './finding.ts'
import { checkDataDirectory, checkDisk } from './machine.ts'
import * as network from './network.ts'
import { checkCounts } from './scraped.ts'
import { checkSettings } from './settings.ts'
import * as stored from './stored.ts'

type Flags = { 'data-dir'?: string | undefined; host?: string | undefined; port?: number | undefined }
type Options = {
  /** Asks no other machine than that of the database, and not the running service. */
  offline: boolean
  /** Called with what is checked next. */
  onCheck?(name: string): void
  /** Instead of the environment of this process. */
  env?: Env
}

export type Examination = {
  findings: Finding[]
  /** What can be mended automatically. */
  repairs: Repair[]
}

/**
 * Examines an installation with its own settings, also while it is served, and changes nothing. A check that needs the result of
 * one that failed is left out.
 */
export async function examine(
  flags: Flags,
  { offline, onCheck = () => {}, env }: Options,
): Promise<Examination> {
  const findings: Finding[] = []
  const repairs: Repair[] = []
  /** False when the check did not come to its end. */
  const add: AddCheck = async (name, run, ms) => {
    onCheck(name)
    const found = await runCheck(name, run, ms)
    findings.push(...found.findings)
    return found.isComplete
  }
  const hasErrors = () => findings.some(({ state }) => state === 'error')

  const dataDir = dataDirOf(flags, env)
  await add('data directory', () => checkDataDirectory(dataDir, repairs))
  if (hasErrors()) return { findings, repairs: [] }
  await add('disk', () => checkDisk(dataDir))

  const config = await settingsOrFinding(flags, env, findings)
  const place = config ?? (await orUndefined(() => databaseOf(flags, env)))
  const options = place && { dataDir: place.dataDir, databaseUrl: place.databaseUrl }
  const storage = options && (await openDatabase(options, findings))
  if (storage) {
    try {
      await examineDatabase({ storage, options, config, add, repairs, hasErrors })
    } finally {
      await storage.close()
    }
  }
  if (config && !offline) {
    if (config.port !== 0) await add('service', () => network.checkService(config))
    if (config.port !== 0) await add('limits', () => checkCounts(config))
    await add('public address', () => network.checkPublicUrl(config))
    await add('mail', () => network.checkMail(config))
    await add('SMS', () => network.checkSms(config))
  }
  return { findings, repairs }
}

type AddCheck = (name: string, run: () => Promise<Finding[]>, ms?: number) => Promise<boolean>

async function settingsOrFinding(
  flags: Flags,
  env: Env | undefined,
  findings: Finding[],
): Promise<Config | undefined> {
  try {
    const config = existingConfig(flags, env)
    findings.push(...checkSettings(config))
    return config
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    findings.push(
      failed('settings', {
        message: error.message,
        reason: 'The service does not start with these settings and files.',
        remedy:
          'run this as the user of the service and with its environment; svc-serve(8) explains each variable',
      }),
    )
    return undefined
  }
}

async function orUndefined<T>(read: () => T): Promise<T | undefined> {
  try {
    return read()
  } catch {
    // The finding about the settings says why.
    return undefined
  }
}

async function openDatabase(options: StorageOptions, findings: Finding[]): Promise<ReadStorage | undefined> {
  const explained = {
    reason: 'The service cannot start, or answers 503.',
    remedy:
      'start the database, and check its address, password and connections (svc-serve(8), Database); a damaged file is restored from a backup, and kept',
  }
  if (!(await databaseExists(options))) {
    findings.push(
      failed('database', { message: `There is no database in ${options.dataDir}.`, ...explained }),
    )
    return undefined
  }
  try {
    return await openReadOnly(options)
  } catch (error) {
    findings.push(failed('database', { message: (error as Error).message, ...explained }))
    return undefined
  }
}

async function examineDatabase({
  storage,
  options,
  config,
  add,
  repairs,
  hasErrors,
}: {
  storage: ReadStorage
  options: StorageOptions
  /** undefined when the settings are wrong. */
  config: Config | undefined
  add: AddCheck
  repairs: Repair[]
  hasErrors(): boolean
}): Promise<void> {
  const now = systemClock()
  const { heavy } = storage
  const pages = () => database.checkIntegrity(storage)
  // A database that does not answer one question keeps each of the others waiting.
  if (!(await add('database', () => database.checkServer(storage)))) return
  if (!(await add('database pages', pages, database.integrityMs))) return
  const unsafe = hasErrors()
  const schema: Repair[] = []
  const isKnown = await add('database schema', () => database.checkSchema(storage, options, schema))
  // Not on damaged pages.
  if (!unsafe) repairs.push(...schema)
  // The tables of another version may lack what is read here.
  if (!isKnown || schema.length > 0 || (!unsafe && hasErrors()) || !config) return

  const { dataDir } = config
  const cipher = cipherOf(config)
  const checks: [string, () => Promise<Finding[]>][] = [
    ['database', () => database.checkNotLost(storage, dataDir)],
    ['pooler', () => database.checkPooler(config)],
    ['database upkeep', async () => (await upkeepOf(storage)).findings],
    ['keys', () => database.checkKeyFingerprints(storage, config)],
    ['secret ages', () => database.checkSecretAges(storage, config, now)],
    ['encrypted values', () => database.checkEncryptedValues(storage, cipher)],
    ['audit log', () => stored.checkAuditChains(heavy, now)],
    ['backup', () => checkBackups(heavy, config, now)],
    ['queues', () => stored.checkQueues(heavy, now)],
    ['leases', () => stored.checkLeases(heavy, now)],
    ['dead letters', () => stored.checkDeadLetters(heavy, now)],
    ['webhooks', () => stored.checkWebhooks(heavy)],
    ['devices', () => stored.checkDevices(heavy, now)],
    ['agents', () => stored.checkAgentVersions(heavy)],
    ['API keys', () => stored.checkKeyExpiry(heavy, now)],
  ]
  for (const [name, run] of checks) {
    if (!(await add(name, run))) return
  }
}
