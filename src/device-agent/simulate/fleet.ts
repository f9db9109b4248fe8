import type { HttpPool } from './http-pool.ts'
import type { Plan } from './plan.ts'
import type { Tally } from './tally.ts'

/** The minimal state of a simulated agent; everything else is derived from its number. */
export type SimulatedAgent = {
  /** From 1. */
  n: number
  id: string
  token: string
  version: string
  autoUpdate: boolean
  /** Number of answered heartbeats. */
  beats: number
  /** Due time of the oldest unanswered heartbeat, by performance.now(). */
  overdueSince: number | undefined
  /** A heartbeat is in flight, or scheduled for a retry. */
  isTrying: boolean
  /** Number of consecutive failures. */
  failures: number
  /** `away` while it restarts for an update; `gone` permanently. */
  state: 'up' | 'away' | 'gone'
  /** An update is in progress: other offers are ignored. */
  isUpdating: boolean
  /** Closes its connection, if it has one. */
  hangUp: (() => void) | undefined
}

/** State shared by the parts of a simulation. */
export type Fleet = {
  plan: Plan
  wire: HttpPool
  tally: Tally
  /** By number less one; agents that are not enrolled yet are missing. */
  agents: (SimulatedAgent | undefined)[]
  signal: AbortSignal
  /** Sends a heartbeat outside of the schedule. */
  beatNow(agent: SimulatedAgent): void
}

export const newSimulatedAgent = (n: number, id: string, token: string, version: string): SimulatedAgent => ({
  n,
  id,
  token,
  version,
  autoUpdate: true,
  beats: 0,
  overdueSince: undefined,
  isTrying: false,
  failures: 0,
  state: 'up',
  isUpdating: false,
  hangUp: undefined,
})

/** Stops an agent, temporarily or permanently. */
export function goOffline(agent: SimulatedAgent, state: 'away' | 'gone'): void {
  agent.state = state
  agent.overdueSince = undefined
  agent.hangUp?.()
}

export const isOnline = ({ state, beats, failures }: SimulatedAgent): boolean =>
  state === 'up' && beats > 0 && failures === 0

/** A pause that the end of the simulation interrupts; then it returns false. */
export function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false)
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer)
      resolve(false)
    }
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', end)
      resolve(true)
    }, ms)
    signal.addEventListener('abort', end, { once: true })
  })
}

const maxPauseMs = 60_000

/** Milliseconds before a retry: 1 s doubling to 60 s, or the Retry-After of the service. */
export const backoffMs = (failures: number, retryAfterMs: number, chance: number): number =>
  Math.max(Math.min(maxPauseMs, 1000 * 2 ** (failures - 1)) * (1 - 0.3 * chance), retryAfterMs)
