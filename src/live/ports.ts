import type { Command } from './wire/contract.ts'

/** Result of a command. */
export type Outcome =
  | { status: 'completed'; result: unknown }
  | { status: 'failed'; error: string; code?: 'log_not_found' | 'record_not_found' | undefined }
  /**
   * unreachable: no process has the agent's connection · busy: the agent has as many commands as it may ·
   * timeout: no reply in time
   */
  | { status: 'unreachable' | 'busy' | 'timeout' }

/** Routes commands to the agent of a device, whichever process has its connection. */
export type AgentChannels = {
  /** Sends the command and waits for its outcome; an abort ends the wait like a timeout. */
  request(deviceId: string, command: Omit<Command, 'id'>, wait: Wait): Promise<Outcome>
}

export type Wait = { timeoutMs: number; signal?: AbortSignal }
