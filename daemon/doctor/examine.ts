import { existsSync } from 'node:fs'
import { type Cipher, createCipher } from '../../src/core/cipher.ts'
import type { Finding } from '../../src/core/finding.ts'
import { systemClock } from '../../src/core/time.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { type Config, dataDirOf, existingConfig } from '../config.ts'
import type { Env } from '../variables.ts'
import * as database from './database.ts'
import { failed, type Repair, runCheck, sentenceOf } from './finding.ts'
import { checkDataDirectory, checkDisk } from './machine.ts'
import * as network from './network.ts'
import { checkSettings } from './settings.ts'
import * as stored from './stored.ts'

type Flags = { 'data-dir'?: string | undefined }
type Options = {
  /** Asks no other machine, and not the running service. */
  offline: boolean
  /** Called with what is checked next. */
  onCheck?(name: string): void
  /** Instead of the environment of this process. */
  env?: Env
}

export type Examination = {
  findings: Finding[]
  /** Of those, what can be mended automatically. Valid until `close`. */
  repairs: Repair[]
  close(): Promise<void>
}

/**
 * Examines an installation with its own settings, also while it is served, and writes nothing. A check that needs the result
 * of one that failed is left out.
 */
export async function examine(
  flags: Flags,
  { offline, onCheck = () => {}, env }: Options,
): Promise<Examination> {
  const findings: Finding[] = []
  const repairs: Repair[] = []
  let storage: Storage | undefined
  const close = async () => storage?.close()
  const add = async (name: string, run: () => Promise<Finding[]>, ms?: number) => {
    onCheck(name)
    findings.push(...(await runCheck(name, run, ms)))
  }

  const dataDir = dataDirOf(flags, env)
  onCheck('data directory')
  const directory = await checkDataDirectory(dataDir)
  findings.push(...directory.findings)
  repairs.push(...directory.repairs)
  if (findings.some(({ state }) => state === 'error')) return { findings, repairs, close }
  await add('disk', () => checkDisk(dataDir))

  const config = readSettings(flags, env, findings)
  if (!config) return { findings, repairs, close }
  findings.push(...checkSettings(config))
  storage = await openDatabase(config, findings)
  if (storage) {
    const { secrets, previous } = config
    const cipher = createCipher([secrets.encryption, ...(previous.encryption ? [previous.encryption] : [])])
    await examineDatabase({ storage, config, cipher, add, repairs })
  }
  if (!offline) {
    if (config.port !== 0) await add('service', () => network.checkService(config))
    await add('public address', () => network.checkPublicUrl(config))
    await add('mail', () => network.checkMail(config))
    await add('SMS', () => network.checkSms(config))
  }
  return { findings, repairs, close }
}

function readSettings(flags: Flags, env: Env | undefined, findings: Finding[]): Config | undefined {
  try {
    return existingConfig(flags, env)
  } catch (error) {
    findings.push(
      failed('settings', {
        message: sentenceOf(error),
        reason: 'The service does not start with these settings.',
        remedy: 'run this with the environment of the service; svc help serve explains each variable',
      }),
    )
    return undefined
  }
}

async function openDatabase(config: Config, findings: Finding[]): Promise<Storage | undefined> {
  const { databaseUrl, dataDir } = config
  const explained = {
    reason: 'The service cannot start, or answers 503.',
    remedy: 'mend this first; svc help serve has a section on the database',
  }
  // Opening it would create it.
  if (databaseUrl === undefined && !existsSync(`${dataDir}/svc.sqlite`)) {
    findings.push(failed('database', { message: `There is no database in ${dataDir}.`, ...explained }))
    return undefined
  }
  const options = { dataDir, ...(databaseUrl !== undefined && { databaseUrl }) }
  try {
    return await openStorage({ ...options, postgres: { poolSize: 2 } })
  } catch (error) {
    findings.push(failed('database', { message: `It cannot be opened: ${sentenceOf(error)}`, ...explained }))
    return undefined
  }
}

async function examineDatabase({
  storage,
  config,
  cipher,
  add,
  repairs,
}: {
  storage: Storage
  config: Config
  cipher: Cipher
  add: (name: string, run: () => Promise<Finding[]>, ms?: number) => Promise<void>
  repairs: Repair[]
}): Promise<void> {
  const now = systemClock()
  const { heavy } = storage
  await add('database', () => database.checkServer(storage))
  await add('database pages', () => database.checkIntegrity(storage), database.integrityMs)
  let isCurrent = false
  await add('database schema', async () => {
    const schema = await database.checkSchema(storage)
    repairs.push(...schema.repairs)
    isCurrent = schema.findings.every(({ state }) => state === 'ok')
    return schema.findings
  })
  // The tables of another version may lack what is read here.
  if (!isCurrent) return
  await add('database writes', () => database.checkWritable(storage))
  await add('keys', () => database.checkKeyFingerprints(storage, config))
  await add('encrypted values', () => database.checkEncryptedValues(storage, cipher))
  await add('audit log', () => stored.checkAuditChains(heavy, now))
  await add('queues', () => stored.checkQueues(heavy, now))
  await add('dead letters', () => stored.checkDeadLetters(heavy))
  await add('webhooks', () => stored.checkWebhooks(heavy))
  await add('devices', () => stored.checkDevices(heavy))
  await add('API keys', () => stored.checkKeyExpiry(heavy, now))
}
