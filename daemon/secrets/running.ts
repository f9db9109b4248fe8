import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { Counter, Gauge, Registry } from 'prom-client'
import { recordKeys } from '../../src/audit/checkpoints/signer.ts'
import { SetupError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/new-id.ts'
import { type Clock, millisecondsOf } from '../../src/core/time.ts'
import type { Storage } from '../../src/storage/open.ts'
import {
  aliveMs,
  announceProcess,
  forgetProcess,
  liveProcesses,
} from '../../src/storage/service-processes.ts'
import type { Config } from '../config.ts'
import {
  checkKeys,
  fingerprintsOf,
  keysAwaitingRollout,
  missingKeys,
  withFormerKeys,
} from '../key-fingerprints.ts'
import type { StoredMetrics } from '../metrics.ts'
import { changedSettings } from './changes.ts'
import { warnOfFallbacks } from './fallbacks.ts'
import { type SecretSet, secretSet } from './set.ts'
import type { SettingsSource } from './source.ts'

/** Interval at which a process says that it is alive: a quarter of the time after which it counts as dead. */
const announceMs = 15_000
/** Processes that metrics name. */
const maxNamed = 100

type On = {
  storage: Storage
  clock: Clock
  log: Logger
  metrics: Registry
  config: Config
  /** undefined: settings stay what they are. */
  source?: SettingsSource | undefined
}

/**
 * The secrets that a service uses at this moment, and how it takes others while it runs.
 *
 * A replica may make nothing with a key that another one cannot open. So each process announces the keys that it knows, and
 * uses a new one once all that live have announced it; until then it makes everything with the former one.
 */
export class RunningSecrets {
  readonly #on: On
  readonly #self: { id: string; host: string; pid: number; startedAt: string }
  readonly #failures: Counter
  readonly #lastGood: Gauge
  readonly stored: StoredMetrics
  #set: SecretSet
  /** The settings as they were read, where `#set` may still use former keys. */
  #read: Config
  #files: string | undefined
  #waiting: readonly string[] = []
  #isAsked = false
  #announcedAt = 0
  /** Until then other processes may be alive that could not announce themselves. */
  #sureAt = 0
  #wake = () => {}

  /** @throws SetupError when the database was used with other keys */
  static async begin(on: On): Promise<RunningSecrets> {
    const secrets = new RunningSecrets(on)
    await secrets.#announce(on.config)
    try {
      await secrets.#settle([])
    } catch (error) {
      // The row of a process that has ended expires by itself.
      await secrets.end().catch(() => {})
      throw error
    }
    await secrets.#recordSigningKeys(secrets.now.config)
    return secrets
  }

  private constructor(on: On) {
    const { storage, clock, metrics, config } = on
    this.#on = on
    this.#self = { id: newId(), host: hostname(), pid: process.pid, startedAt: clock() }
    this.#files = on.source?.first
    this.#read = config
    this.#set = secretSet(config, on)
    this.#failures = new Counter({
      name: 'svc_reload_failures_total',
      help: 'Changes of secrets that this process did not take, because a file was faulty or the keys were others.',
      registers: [metrics],
    })
    this.#lastGood = new Gauge({
      name: 'svc_reload_last_success_timestamp_seconds',
      help: 'When this process last read its secrets without a fault.',
      registers: [metrics],
    })
    this.#lastGood.set(millisecondsOf(clock()) / 1000)
    this.stored = inUse(storage)
  }

  /** The set that is used; a request that began with another one finishes with it. */
  get now(): SecretSet {
    return this.#set
  }

  onReloadRequested(wake: () => void): void {
    this.#wake = wake
  }

  /** Reads everything again soon, whether or not a file has changed. */
  requestReload(): void {
    this.#isAsked = true
    this.#wake()
  }

  /** Takes what has changed, and says that this process is alive. */
  async poll(): Promise<void> {
    const files = this.#on.source?.stamp()
    if (this.#isAsked || files !== this.#files) return this.#reload(files)
    if (this.#waiting.length > 0) await this.#settle(this.#waiting)
    if (performance.now() - this.#announcedAt >= announceMs) await this.#announce(this.now.config)
  }

  end(): Promise<unknown> {
    return forgetProcess(this.#on.storage, this.#self.id)
  }

  async #reload(files: string | undefined): Promise<void> {
    const { source, storage, clock, log } = this.#on
    if (!source) return
    const isAsked = this.#isAsked
    // Asked again by itself if the database fails meanwhile.
    this.#isAsked = true
    const before = this.now.config
    const known = this.#read
    try {
      const config = { ...source.read(), acceptedKeys: undefined }
      const missing = await missingKeys(storage.read, config)
      if (missing.length > 0) throw new SetupError(lacking(missing))
      // First it can open what the new keys make; only then others hear of it.
      await this.#take(config, await keysAwaitingRollout(storage.read, config))
      await this.#announce(this.now.config)
      await this.#settle(takenBy(before, config))
    } catch (error) {
      if (!(error instanceof SetupError)) throw error
      this.#isAsked = false
      this.#files = files
      this.#failures.inc()
      log.error({ reason: error.message }, 'the secrets stay as they are: they could not be reloaded')
      return
    }
    this.#isAsked = false
    this.#files = files
    this.#lastGood.set(millisecondsOf(clock()) / 1000)
    const { reloadable, restart } = changedSettings(known, this.#read, this.#on.config)
    const facts = { changed: reloadable, ...(this.#waiting.length > 0 && { waiting: this.#waiting }) }
    if (restart.length > 0)
      log.warn({ ...facts, restart }, 'secrets were reloaded; `restart` needs a restart')
    else if (isAsked || reloadable.length > 0) log.info(facts, 'secrets were reloaded')
    if (this.#read.weakSecrets !== undefined) log.warn(this.#read.weakSecrets)
    warnOfFallbacks(this.#read, log)
  }

  /** Uses each new key that all live processes know. */
  async #settle(taken: readonly string[]): Promise<void> {
    const { storage, clock, log } = this.#on
    const at = performance.now()
    const isSure = at >= this.#sureAt && at - this.#announcedAt < aliveMs
    const { changed, waiting } = await checkKeys(storage, this.#read, clock(), { taken, isSure })
    if (changed.length > 0) log.warn({ keys: changed }, 'keys were changed')
    const isNew = waiting.join() !== this.#waiting.join() || changed.length > 0
    if (!isNew) return
    if (waiting.length > 0) log.info({ keys: waiting }, 'a new key is used once all processes know it')
    await this.#take(this.#read, waiting)
    await this.#announce(this.now.config)
  }

  async #take(config: Config, waiting: readonly string[]): Promise<void> {
    const next = withFormerKeys(config, waiting)
    const isOtherSigner = !next.signing.current.equals(this.now.config.signing.current)
    if (isOtherSigner) await this.#recordSigningKeys(next)
    const set = secretSet(next, this.#on, this.now)
    this.#set = set
    this.#read = config
    this.#waiting = waiting
    this.#on.log.level = config.logLevel
  }

  async #recordSigningKeys({ signing }: Config): Promise<void> {
    const { storage, clock, log } = this.#on
    const unlinked = await storage.write((tx) => recordKeys(tx, signing, clock()))
    if (unlinked.length === 0) return
    const text =
      'The audit log was signed with another key before, which AUDIT_SIGNING_KEY_PREVIOUS does not contain: ' +
      'its signatures verify only with its own public key'
    log.warn({ publicKeys: unlinked }, text)
  }

  async #announce(config: Config): Promise<void> {
    await announceProcess(this.#on.storage, { ...this.#self, prints: fingerprintsOf(config) })
    const now = performance.now()
    if (this.#announcedAt > 0 && now - this.#announcedAt >= aliveMs) this.#sureAt = now + aliveMs
    this.#announcedAt = now
  }
}

/** Names of the keys that make values from now on and did not before. */
function takenBy(before: Config, after: Config): string[] {
  const [old, fresh] = [fingerprintsOf(before), fingerprintsOf(after)]
  return Object.keys(fresh).filter((name) => old[name]?.[0] !== fresh[name]?.[0])
}

const lacking = (names: readonly string[]): string =>
  `The files have other keys than the database is used with, and not the former ones: ${names.join(', ')}. ` +
  `A key that is changed on purpose needs ${names.map((name) => `${name}_PREVIOUS`).join(' and ')}`

/** What the processes of the service make new values with. */
function inUse(storage: Storage): StoredMetrics {
  const registry = new Registry()
  const gauge = new Gauge({
    name: 'svc_secret_in_use',
    help: 'The current secret of each kind in this process, by the id that svc secrets list shows.',
    labelNames: ['host', 'pid', 'secret', 'id'],
    registers: [registry],
  })
  const refresh = async () => {
    gauge.reset()
    for (const { host, pid, prints } of (await liveProcesses(storage.read)).slice(-maxNamed))
      for (const [secret, [print]] of Object.entries(prints))
        gauge.set({ host, pid: String(pid), secret, id: print!.slice(0, 8) }, 1)
  }
  return { registry, refresh }
}
