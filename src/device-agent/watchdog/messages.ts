import { z } from 'zod'
import { safeParse } from '../../core/schema.ts'

/*
 * Messages from an agent to the watchdog that started it, over their IPC channel. The other process may be another
 * version of this program: unknown messages are ignored, and fields are never removed.
 */

export const Alive = z.object({
  said: z.literal('alive'),
  version: z.string(),
  /** Number of heartbeats that the service accepted. */
  heartbeats: z.number(),
  /** Expected seconds between two heartbeats. */
  interval: z.number(),
})
export type Alive = z.output<typeof Alive>

const Message = z.discriminatedUnion('said', [
  Alive,
  /** It stops for a reason that a restart would not change, and has reported it. */
  z.object({ said: z.literal('farewell') }),
  /** Another binary is ready for its trial. */
  z.object({ said: z.literal('staged'), version: z.string() }),
])
export type Message = z.output<typeof Message>

export const parseMessage = (message: unknown): Message | undefined => safeParse(Message, message).data

/** Notifies the watchdog, if there is one; resolves when the message is sent. */
export function notifyWatchdog(message: Message): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || !process.send) return resolve()
    process.send(message, undefined, undefined, () => resolve())
  })
}

/** Role of this process: the watchdog, unless a watchdog has started it. */
export type ProcessRole = 'watchdog' | 'agent' | 'trial' | 'agent-on-trial'

const variable = 'SVC_AGENT_PART'

/** Reads and removes the role: child processes that read the machine must not inherit it. */
export function takeRole(env: NodeJS.ProcessEnv): ProcessRole {
  const { [variable]: part } = env
  delete env[variable]
  return part === 'agent' || part === 'trial' || part === 'agent-on-trial' ? part : 'watchdog'
}

export const roleEnv = (part: ProcessRole): Record<string, string> => ({ [variable]: part })
