import { randomBytes } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { Registry } from 'prom-client'
import { SetupError } from '../src/core/errors.ts'
import { makeFolder } from '../src/core/make-folder.ts'
import { newId } from '../src/core/new-id.ts'
import type { Clock } from '../src/core/time.ts'
import { createPasswordGuard } from '../src/identity/password-guard/guard.ts'
import { hashPassword } from '../src/identity/password-hash.ts'
import { seedRoles } from '../src/identity/seeds.ts'
import { hasUsers, insertUser } from '../src/identity/store.ts'
import { ByteQuota, LogQuota } from '../src/logs/quota.ts'
import { type WriteBlock, WriteGate, withWriteGate } from '../src/storage/copy/write-gate.ts'
import { violatedUniqueKey } from '../src/storage/database-errors.ts'
import { openStorage, type Storage } from '../src/storage/open.ts'
import { version } from '../src/version.ts'
import { createAuthenticator } from './actor.ts'
import { clientReader, proxyReader } from './address.ts'
import { AgentAuditBuffer } from './agent-audit-buffer.ts'
import { AgentEventBuffer } from './agent-event-buffer.ts'
import { AgentWatch } from './agent-watch.ts'
import { buildApp } from './app.ts'
import { watchAudit } from './audit-watch.ts'
import { backgroundLoops } from './background.ts'
import { encrypter } from './backup/age.ts'
import { BodyBudget } from './body-budget.ts'
import { CommandWatch } from './command-watch.ts'
import { ConcurrencyLimit } from './concurrency-limit.ts'
import type { Config } from './config.ts'
import { ConnectionLimit } from './connection-limit.ts'
import { connectionsOf } from './connections.ts'
import { DatabaseWatch } from './database-watch.ts'
import { DeadLetterWatch } from './dead-letter-watch.ts'
import type { Dependencies } from './dependencies.ts'
import { FairShareKeys } from './fair-share-keys.ts'
import { keepFirstPassword } from './first-password.ts'
import { handlersOf } from './handlers.ts'
import type { Integrations } from './integrations/open.ts'
import { IntegrityWatch } from './integrity-watch.ts'
import { createKeyAuthenticator } from './key-actor.ts'
import { assertDatabaseNotLost } from './key-fingerprints.ts'
import { KeyMeter } from './key-meter.ts'
import { Limiter, refusalCounter } from './limiter.ts'
import { listen } from './listen.ts'
import { LogWatch } from './log-watch.ts'
import { type Loop, soonAfterStart } from './loop.ts'
import { LoopWatch } from './loop-watch.ts'
import { assertOpen, gateListener } from './maintenance.ts'
import { metricsOf, readinessOf } from './observability.ts'
import { QuotaCheck } from './quotas.ts'
import { ReadQueryQueue } from './read-query-queue.ts'
import { prepareSchema } from './schema.ts'
import { assertOwnSecrets, warnOfFallbacks } from './secrets/fallbacks.ts'
import { RunningSecrets } from './secrets/running.ts'
import { currentProxy } from './secrets/set.ts'
import type { SettingsSource } from './secrets/source.ts'
import { SharedLimiter } from './shared-limiter.ts'
import { SignInWatch } from './sign-in-watch.ts'
import { StorageWatch } from './storage-watch.ts'
import { openTracing } from './tracing.ts'
import { WebhookWatch } from './webhook-watch.ts'

export type FirstAdministrator = {
  password: string
  /** Why it is in no file, if so. */
  notKept: string | undefined
}

export type Service = {
  url: string
  storage: Storage
  /** Where this start has created them with a generated password. */
  firstAdministrator: FirstAdministrator | undefined
  /** Takes secrets that have changed, soon. */
  reload(): void
  /** Stops accepting requests, and finishes those in progress within 10 s. */
  close(): Promise<void>
}

export type ServeOptions = Partial<Integrations> & {
  /** Of the process, which ends it. */
  log: Logger
  /** Refuses an SQLite directory that another process serves. */
  alone?: boolean
  /** Milliseconds from the start to the first run of work with a long interval; soon by default. */
  firstRunMs?: number
  /** Where changed settings are read. */
  source?: SettingsSource | undefined
}

/** config → storage → app → loops; the result closes them in reverse order. `replaced` replaces the ports to the outside. */
export async function serve(
  config: Config,
  clock: Clock,
  { log, alone = false, firstRunMs = soonAfterStart(), source, ...replaced }: ServeOptions,
): Promise<Service> {
  if (config.weakSecrets !== undefined) log.warn(config.weakSecrets)
  const { recipients } = config.backups
  if (recipients.length > 0) await encrypter(recipients, 'BACKUP_RECIPIENTS')
  makeDataDir(config.dataDir)
  const onRefused = (reason: string) => log.warn({ reason }, 'waiting for the database')
  const place = {
    dataDir: config.dataDir,
    databaseUrl: config.databaseUrl,
    postgres: { ...config.postgres, onRefused },
  }
  const metrics = new Registry()
  const observer = new StorageWatch(log, metrics)
  const { poolerUrl, readQueries: readLimits } = config
  const opened = await openStorage({ ...place, poolerUrl, alone, readQueries: readLimits, observer })
  let onGate = (_: WriteBlock | undefined): void => {}
  const gate = new WriteGate({ storage: opened, dataDir: config.dataDir }, (closure) => onGate(closure))
  const storage = withWriteGate(opened, gate)
  try {
    await assertOpen(gate)
    await prepareSchema(storage, place, config, log)
    await assertDatabaseNotLost(storage, config.dataDir)
    await assertOwnSecrets(storage, config)
    warnOfFallbacks(config, log)
    const secrets = await RunningSecrets.begin({ storage, clock, log, metrics, config, source })
    const firstAdministrator = await firstRun(storage, config, clock())

    const tracing = await openTracing(config, storage, { log, metrics })
    const { limits } = config
    const onRefused = refusalCounter(metrics, limits)
    const limiter = new Limiter(limits, onRefused)
    const sharedLimiter = new SharedLimiter({
      storage,
      limits,
      clock,
      onRefused,
      get pepper() {
        return secrets.now.config.secrets.recoveryPepper
      },
      get otherPepper() {
        return secrets.now.config.previous.recoveryPepper
      },
    })
    const agentEntries = new AgentAuditBuffer(limiter, metrics, gate)
    const agentEvents = new AgentEventBuffer(limiter, metrics, gate)
    const bodies = new BodyBudget(config.bodies, 'requests', metrics)
    const replies = new BodyBudget(config.bodies, 'replies', metrics)
    const work = new ConcurrencyLimit(config.maxRequests, metrics)
    const connections = new ConnectionLimit(config.connections, proxyReader(config.proxies), metrics)
    const meter = new KeyMeter(storage)
    const cipher = currentProxy(() => secrets.now.cipher)
    const outside = { ...livePorts(secrets), ...replaced }
    const publicUrl = (): string => config.outside.publicUrl ?? urlOf(app, config.host)
    const signer = currentProxy(() => secrets.now.signer)
    const audit = watchAudit({ ...config, storage, clock, log, metrics, signer })
    const outputs = new CommandWatch(log, metrics)
    const commandQuota = new ByteQuota(config.commandBytes, (excess) => outputs.add(excess))
    const agentWatch = new AgentWatch({ ...config, storage, clock, metrics })
    const agents = connectionsOf({ storage, limiter, bodies, clock, log, commandQuota, agentWatch }, config)
    const { appUrl, samlEntityId } = config.outside
    // In production links must not point to the localhost of the reader.
    const isKnown = config.outside.publicUrl !== undefined || !config.production
    const web = { url: () => (isKnown ? publicUrl() : undefined), app: appUrl, samlEntityId }
    const rollouts = { isStarted: false }
    const webhooks = new WebhookWatch(storage, clock, metrics)
    const database = new DatabaseWatch(storage, log, metrics)
    const integrity = new IntegrityWatch(storage, clock, log, metrics)
    const signIns = new SignInWatch(storage, clock, metrics)
    const setAside = new DeadLetterWatch(storage, clock, log)
    const logs = new LogWatch(log, metrics)
    const logQuota = new LogQuota(config.logBytes, (excess) => logs.add(excess))
    const readQueries = new ReadQueryQueue(storage, config.readQueries, metrics)
    const onStopped = signIns.add.bind(signIns)
    const guard = createPasswordGuard({ cipher, publicUrl, limits, onLockedOut: onStopped })
    onGate = gateListener(opened, { agentEntries, agentEvents, clock, log })
    const own = {
      storage,
      firstRunMs,
      gate,
      storageWatch: observer,
      metrics,
      tracing,
      limiter,
      sharedLimiter,
      agentEntries,
      agentEvents,
      bodies,
      replies,
      work,
      connections,
      cipher,
      secrets,
      clock,
      log,
      meter,
      audit,
      webhooks,
      database,
      integrity,
      signIns,
      setAside,
      logs,
      loops: new LoopWatch(clock, metrics),
      logQuota,
      outputs,
      commandQuota,
      readQueries,
      guard,
      agentWatch,
      ...agents,
      publicUrl,
      web,
      rollouts,
    }
    const parts: Dependencies = { ...own, ...outside }
    const app: FastifyInstance = appOf(parts, config)
    await listen(app, { host: await addressOf(config.host), port: config.port })

    const loops = backgroundLoops(parts, config)
    return {
      url: urlOf(app, config.host),
      storage,
      firstAdministrator,
      reload: () => secrets.requestReload(),
      close: () => drain(app, loops, parts),
    }
  } catch (error) {
    gate.close()
    await storage.close()
    throw error
  }
}

/**
 * `localhost` may be 127.0.0.1 and ::1, for which Fastify opens a second server that has none of the limits of the first:
 * the service listens on the first of them, which clients of that name try first too.
 */
const addressOf = async (host: string): Promise<string> =>
  host === 'localhost' ? (await lookup(host)).address : host

const mkdirFailures: Readonly<Record<string, string>> = {
  EEXIST: 'there is a file of that name',
  ENOTDIR: 'a part of its path is a file',
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'the file system is read-only',
}

/** @throws SetupError when there is none and none can be made */
function makeDataDir(dataDir: string): void {
  try {
    makeFolder(dataDir)
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    throw new SetupError(
      `Cannot use the data directory ${dataDir}: ${mkdirFailures[code] ?? message}. Choose another with --data-dir or SVC_DATA_DIR.`,
    )
  }
}

/** Creates built-in roles, and a system administrator if there is no user. */
async function firstRun(
  storage: Storage,
  { admin, dataDir }: Config,
  now: string,
): Promise<FirstAdministrator | undefined> {
  await storage.write((tx) => seedRoles(tx, now))
  if (await hasUsers(storage.read)) return undefined
  const password = admin.password ?? randomBytes(15).toString('base64url')
  const passwordHash = await hashPassword(password)
  const user = {
    id: newId(),
    email: admin.email,
    name: 'System administrator',
    passwordHash,
    isSystem: true,
    emailProvedAt: now,
  }
  const isGenerated = admin.password === undefined
  let notKept: string | undefined
  try {
    await storage.write(async (tx) => {
      await insertUser(tx, user, now)
      if (isGenerated) notKept = keepFirstPassword(dataDir, password)
    })
  } catch (error) {
    // Another process on the same database created it first.
    if (violatedUniqueKey(error)) return undefined
    throw error
  }
  return isGenerated ? { password, notKept } : undefined
}

function appOf(parts: Dependencies, config: Config): FastifyInstance {
  const {
    storage,
    limiter,
    sharedLimiter,
    agentEntries,
    work,
    bodies,
    replies,
    readQueries,
    meter,
    cipher,
    clock,
    log,
  } = parts
  const { secrets: running } = parts
  const quotas = new QuotaCheck(config.quotas, parts.metrics)
  const handlers = handlersOf(parts, config, quotas)
  const on = {
    storage,
    gate: parts.gate,
    actors: createAuthenticator(
      storage,
      () => running.now.tokens,
      limiter,
      createKeyAuthenticator(storage, meter, limiter),
      config.mfaOn,
    ),
    limiter,
    sharedLimiter,
    agentEntries,
    readQueries,
    quotas,
    bodies,
    replies,
    work,
    fairShareKeys: new FairShareKeys(storage),
    cipher,
    clock,
    clientOf: clientReader(config.proxies, config.outside.publicUrl),
    origins: config.origins,
  }
  return buildApp(handlers, on, {
    version,
    log,
    readiness: readinessOf(parts),
    onError: (error) => parts.database.note(error),
    gateway: parts.agents,
    connections: parts.connections,
    headerMs: config.headerMs,
    tracing: parts.tracing,
    publicUrl: parts.publicUrl,
    metrics: metricsOf(parts, config),
  })
}

/** The ports of the set that is used. Whether there is an archive or a host of releases is no matter of a secret. */
function livePorts(secrets: RunningSecrets): Integrations {
  const { outbound, archive, releases } = secrets.now.ports
  return {
    outbound,
    mailer: currentProxy(() => secrets.now.ports.mailer),
    phoneCodes: currentProxy(() => secrets.now.ports.phoneCodes),
    archive: archive && currentProxy(() => secrets.now.ports.archive!),
    releases: releases && currentProxy(() => secrets.now.ports.releases!),
    binaries: currentProxy(() => secrets.now.ports.binaries),
  }
}

/** Time to drain: of the ten seconds the storage takes one to close, and the end of the process on a busy machine may take another. */
const drainMs = 7500

async function drain(
  app: FastifyInstance,
  loops: Loop[],
  { meter, agentEntries, agentEvents, storage, gate, outbound, tracing, clock, secrets }: Dependencies,
): Promise<void> {
  const late = new Promise<void>((resolve) => setTimeout(resolve, drainMs).unref())
  // Replies that began before the shutdown leave their connections open.
  const idle = setInterval(() => app.server.closeIdleConnections(), 100)
  await Promise.race([app.close(), late])
  clearInterval(idle)
  await Promise.race([Promise.all(loops.map((one) => one.stop())), late])
  // What cannot be written down now is lost, and must not keep the process.
  const ends = [
    meter.close(),
    agentEntries.write(storage, clock()),
    agentEvents.write(storage, clock()),
    secrets.end(),
  ]
  await Promise.race([Promise.allSettled(ends), late])
  await Promise.race([outbound.close(), late])
  gate.close()
  await Promise.all([storage.close(), tracing?.close()])
}

function urlOf(app: FastifyInstance, host: string): string {
  const address = app.server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const name = host === '0.0.0.0' || host === '::' ? 'localhost' : host
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`
}
