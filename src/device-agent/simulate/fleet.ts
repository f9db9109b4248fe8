import type { HttpPool } from './http-pool.ts'
import type { Plan } from './plan.ts'
import type { Tally } from './tally.ts'

/** As little as there is to keep of one agent; the rest follows from its number. */
export type SimulatedAgent = {
  /** From 1. */
  n: number
  id: string
  token: string
  version: string
  autoUpdate: boolean
  /** Heartbeats that were answered. */
  beats: number
  /** When the heartbeat was due that was not answered yet, by performance.now(). */
  overdueSince: number | undefined
  /** It is on its way, or will be tried again. */
  isTrying: boolean
  /** Times in a row that it was not answered. */
  failures: number
  /** `away` while it is replaced by another version; `gone` for good. */
  state: 'up' | 'away' | 'gone'
  /** It follows an offer: others are for later. */
  isUpdating: boolean
  /** Ends its connection, where it has one. */
  hangUp: (() => void) | undefined
}

/** What the parts of a simulation share. */
export type Fleet = {
  plan: Plan
  wire: HttpPool
  tally: Tally
  /** By number less one; those that are not enrolled yet are missing. */
  agents: (SimulatedAgent | undefined)[]
  signal: AbortSignal
  /** A heartbeat out of turn. */
  beatNow(agent: SimulatedAgent): void
}

export const newSimulatedAgent = (n: number, id: string, token: string, version: string): SimulatedAgent => ({
  ...{ n, id, token, version, autoUpdate: true, beats: 0 },
  ...{
    overdueSince: undefined,
    isTrying: false,
    failures: 0,
    state: 'up',
    isUpdating: false,
    hangUp: undefined,
  },
})

/** Nothing is heard of it, for a while or for good. */
export function goOffline(agent: SimulatedAgent, state: 'away' | 'gone'): void {
  agent.state = state
  agent.overdueSince = undefined
  agent.hangUp?.()
}

export const isOnline = ({ state, beats, failures }: SimulatedAgent): boolean =>
  state === 'up' && beats > 0 && failures === 0

/** A pause that the end of the simulation cuts short; false when it did. */
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

/** Milliseconds before a request is made again: 1 s doubling to 60 s, or what the service asks for. */
export const backoffMs = (failures: number, retryAfterMs: number, chance: number): number =>
  Math.max(Math.min(maxPauseMs, 1000 * 2 ** (failures - 1)) * (1 - 0.3 * chance), retryAfterMs)
