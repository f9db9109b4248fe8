import { z } from 'zod'
import { safeParse } from '../../core/schema.ts'

/*
 * What an agent tells the watchdog that started it, over the channel between them. Another version of this program may be
 * at the other end: what is not understood is ignored, and a field that is here stays.
 */

export const Alive = z.object({
  said: z.literal('alive'),
  version: z.string(),
  /** How many heartbeats the service has taken from it. */
  heartbeats: z.number(),
  /** Seconds that may lie between two. */
  interval: z.number(),
})
export type Alive = z.output<typeof Alive>

const Message = z.discriminatedUnion('said', [
  Alive,
  /** It ends for a reason that starting it again would not change, and has told a person. */
  z.object({ said: z.literal('farewell') }),
  /** There is another binary to be tried. */
  z.object({ said: z.literal('staged'), version: z.string() }),
])
export type Message = z.output<typeof Message>

export const parseMessage = (message: unknown): Message | undefined => safeParse(Message, message).data

/** Tells the watchdog, where there is one; resolves when it is on its way. */
export function notifyWatchdog(message: Message): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || !process.send) return resolve()
    process.send(message, undefined, undefined, () => resolve())
  })
}

/** What part of the agent this process is: nothing, that is to say the watchdog, unless one has started it. */
export type ProcessRole = 'watchdog' | 'agent' | 'trial' | 'agent-on-trial'

const variable = 'SVC_AGENT_PART'

/** For once: the programs that the machine is asked with are no part of the agent. */
export function takeRole(env: NodeJS.ProcessEnv): ProcessRole {
  const { [variable]: part } = env
  delete env[variable]
  return part === 'agent' || part === 'trial' || part === 'agent-on-trial' ? part : 'watchdog'
}

export const roleEnv = (part: ProcessRole): Record<string, string> => ({ [variable]: part })
