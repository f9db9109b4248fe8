import type { Command } from './wire/contract.ts'

/** What became of a command. */
export type Outcome =
  | { status: 'completed'; result: unknown }
  | { status: 'failed'; error: string; code?: 'log_not_found' | 'record_not_found' | undefined }
  /** Nobody holds the agent's connection; the agent already has all it may have; no answer came in time. */
  | { status: 'unreachable' | 'busy' | 'timeout' }

/** Connects whoever asks with the agent of a device, wherever its connection ends. */
export type Switchboard = {
  /** Sends the command and waits for what becomes of it; an abort gives the wait up as if time had run out. */
  ask(deviceId: string, command: Omit<Command, 'id'>, wait: Wait): Promise<Outcome>
}

export type Wait = { timeoutMs: number; signal?: AbortSignal }
