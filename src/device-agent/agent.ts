import type { WebSocket } from 'ws'
import type { Client } from '../core/client.ts'
import type { MonotonicClock } from './clock.ts'
import type { CommandHistory } from './commands/history.ts'
import type { Report } from './events.ts'
import type { LogPositionStore } from './log-position.ts'
import type { Machine } from './machine.ts'
import type { SettingsStore } from './settings.ts'
import type { Spool } from './spool/spool.ts'
import type { IdentityStore } from './state.ts'
import type { TrustStore } from './update/trust-store.ts'
import type { Updater } from './update/updater.ts'

/** A WebSocket to the service, authenticated as the agent. */
export type Dial = (agentId: string, authToken: string) => Promise<WebSocket>

/** The dependencies of an agent. */
export type Agent = {
  machine: Machine
  identity: IdentityStore
  logPosition: LogPositionStore
  settings: SettingsStore
  /** Records to send when the service is reachable. */
  spool: Spool
  commands: CommandHistory
  /** Trusted release keys. */
  trust: Pick<TrustStore, 'pin'>
  /** Without it the agent neither reports update settings nor updates. */
  updater?: Updater
  /** A client of the service, with the agent's own token after the enrollment. */
  connect: (authToken?: () => string, headers?: Record<string, string>) => Client
  /** Without it the agent answers no live queries. */
  dial?: Dial
  /** Called only when this machine is not enrolled yet. */
  enrollmentKey: () => Promise<string>
  version: string
  clock: MonotonicClock
  /** A random number from 0, inclusive, to 1, exclusive. */
  random: () => number
  report: Report
  /** Stops everything immediately. */
  signal: AbortSignal
}
