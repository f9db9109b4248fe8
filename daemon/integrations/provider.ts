import type { Logger } from 'pino'
import { SetupError } from '../../src/core/errors.ts'
import type { Env } from '../variables.ts'
import type { OutboundSettings } from './guard.ts'

/**
 * What an operator may choose for a port to the outside, such as Twilio for SMS. `providers.ts` lists those there are. What is
 * read is data alone: a reload compares it with what is in use.
 */
export type Provider<Port, Settings extends object = object> = {
  /** Beginning of the names of its variables; the log of a reload names its settings by it. */
  prefix: string
  /** Variables with secrets, which no backup contains. */
  secrets: readonly string[]
  /** undefined: no variable is set. @throws SetupError */
  read(env: Env): Settings | undefined
  open(settings: Settings, outbound: OutboundSettings, log: Logger): Port
  /** A request that is answered with 200 if the settings are right, and has no effect; without it the doctor sends none. */
  probe?(settings: Settings): { url: URL; headers: Record<string, string> }
}

export type ChosenProvider<Port> = { provider: Provider<Port>; settings: object }

/** The provider whose variables are set; undefined: none. @throws SetupError for two */
export function chooseProvider<Port>(
  providers: readonly Provider<Port>[],
  env: Env,
): ChosenProvider<Port> | undefined {
  const chosen = providers.flatMap((provider) => {
    const settings = provider.read(env)
    return settings ? [{ provider, settings }] : []
  })
  if (chosen.length < 2) return chosen[0]
  const names = chosen.map(({ provider }) => `${provider.prefix}_*`)
  throw new SetupError(`Only one of these can be used: ${names.join(', ')}. Set the variables of one alone`)
}
