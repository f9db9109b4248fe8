import type { WebSocket } from 'ws'
import type { Client } from '../core/client.ts'
import type { Clock } from './clock.ts'
import type { CommandHistory } from './commands/history.ts'
import type { Report } from './events.ts'
import type { LogPositionStore } from './log-position.ts'
import type { Machine } from './machine.ts'
import type { SettingsStore } from './settings.ts'
import type { Spool } from './spool/spool.ts'
import type { IdentityStore } from './state.ts'
import type { TrustStore } from './update/trust-store.ts'
import type { Updater } from './update/updater.ts'

/** A WebSocket to the service, in the agent's name. */
export type Dial = (agentId: string, authToken: string) => Promise<WebSocket>

/** All an agent works with. */
export type Agent = {
  machine: Machine
  identity: IdentityStore
  logPosition: LogPositionStore
  settings: SettingsStore
  /** What the service is to be told when it can be. */
  spool: Spool
  commands: CommandHistory
  /** Keys that releases are signed with. */
  trust: Pick<TrustStore, 'pin'>
  /** Without it nothing is said about updates, and none is taken. */
  updater?: Updater
  /** A client of the service, with the agent's own token once it has one. */
  connect: (authToken?: () => string) => Client
  /** Without it nobody can ask this agent anything. */
  dial?: Dial
  /** Asked for only when this machine is not enrolled yet. */
  enrollmentKey: () => Promise<string>
  version: string
  clock: Clock
  /** From 0 up to, not including, 1. */
  random: () => number
  report: Report
  /** Ends everything at once. */
  signal: AbortSignal
}
