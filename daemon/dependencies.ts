import type { pino } from 'pino'
import type { Registry } from 'prom-client'
import type { Nudge } from '../src/agents/commands/ports.ts'
import type { RolloutSignal } from '../src/agents/rollouts/handlers.ts'
import type { Cipher } from '../src/core/cipher.ts'
import type { Clock } from '../src/core/time.ts'
import type { PasswordGuard } from '../src/identity/password-guard/guard.ts'
import type { AgentChannels } from '../src/live/ports.ts'
import type { ByteQuota, LogQuota } from '../src/logs/quota.ts'
import type { WebConfig } from '../src/sso/sign-in/web.ts'
import type { WriteGate } from '../src/storage/copy/write-gate.ts'
import type { Storage } from '../src/storage/open.ts'
import type { AgentAuditBuffer } from './agent-audit-buffer.ts'
import type { AgentEventBuffer } from './agent-event-buffer.ts'
import type { AgentWatch } from './agent-watch.ts'
import type { AuditWatch } from './audit-watch.ts'
import type { BodyBudget } from './body-budget.ts'
import type { CommandWatch } from './command-watch.ts'
import type { ConcurrencyLimit } from './concurrency-limit.ts'
import type { ConnectionLimit } from './connection-limit.ts'
import type { DatabaseWatch } from './database-watch.ts'
import type { DeadLetterWatch } from './dead-letter-watch.ts'
import type { Gateway } from './gateway.ts'
import type { Integrations } from './integrations/open.ts'
import type { IntegrityWatch } from './integrity-watch.ts'
import type { KeyMeter } from './key-meter.ts'
import type { Limiter } from './limiter.ts'
import type { LogWatch } from './log-watch.ts'
import type { LoopWatch } from './loop-watch.ts'
import type { ReadQueryQueue } from './read-query-queue.ts'
import type { RunningSecrets } from './secrets/running.ts'
import type { SharedLimiter } from './shared-limiter.ts'
import type { SignInWatch } from './sign-in-watch.ts'
import type { StorageWatch } from './storage-watch.ts'
import type { Tracing } from './tracing/traces.ts'
import type { WebhookWatch } from './webhook-watch.ts'

/** The parts of a running service. */
export type Dependencies = Integrations & {
  storage: Storage
  /** Milliseconds from the start to the first run of work with a long interval. */
  firstRunMs: number
  /** Closed while the database takes no changes. */
  gate: WriteGate
  storageWatch: StorageWatch
  metrics: Registry
  /** undefined: no traces are made. */
  tracing: Tracing | undefined
  limiter: Limiter
  sharedLimiter: SharedLimiter
  bodies: BodyBudget
  replies: BodyBudget
  work: ConcurrencyLimit
  connections: ConnectionLimit
  meter: KeyMeter
  cipher: Cipher
  secrets: RunningSecrets
  clock: Clock
  log: pino.Logger
  audit: AuditWatch
  webhooks: WebhookWatch
  database: DatabaseWatch
  integrity: IntegrityWatch
  signIns: SignInWatch
  readQueries: ReadQueryQueue
  setAside: DeadLetterWatch
  logs: LogWatch
  loops: LoopWatch
  agentEntries: AgentAuditBuffer
  agentEvents: AgentEventBuffer
  /** The quota of device logs. */
  logQuota: LogQuota
  outputs: CommandWatch
  /** The quota of command results. */
  commandQuota: ByteQuota
  /** Verifies passwords and blocks after wrong ones. */
  guard: PasswordGuard
  /** The connections of agents. */
  agents: Gateway
  agentWatch: AgentWatch
  /** Queries agents and notifies them of pending commands, in any process. */
  switchboard: AgentChannels
  nudge: Nudge
  /** The public address; known once the service listens. */
  publicUrl: () => string
  /** Where browsers continue after single sign-on. */
  web: WebConfig
  rollouts: RolloutSignal
}
