import { Command } from '@oclif/core/command'
import type { Client } from '../core/client.ts'
import { attended, tokenFrom } from './ask.ts'
import { exits } from './exit.ts'
import { connectionFlags, type FlagSet, outputFlags } from './flags.ts'
import { type Output, type OutputFlags, outputOf } from './print.ts'
import { clientFor, type SendOptions, strangerClient } from './send.ts'
import { apiKeyFrom, type FlagSettings, type Settings, settingsOf } from './settings.ts'

export type Session = {
  settings: Settings
  output: Output
  /** A person can be asked. */
  attended: boolean
  client: Client
  /** Without credentials. */
  stranger: Client
  send: SendOptions
}

/** Every command that is not a daemon: output flags, and Ctrl-C that ends it at once with 130. */
export abstract class LocalCommand extends Command {
  static override baseFlags: FlagSet = outputFlags

  override async init(): Promise<void> {
    await super.init()
    process.once('SIGINT', () => process.exit(exits.interrupted))
  }
}

/** A command that talks to a service. */
export abstract class ApiCommand extends LocalCommand {
  static override baseFlags: FlagSet = { ...outputFlags, ...connectionFlags }

  /** `mayBeNew`: the context of the flags need not exist yet. */
  protected open(
    flags: FlagSettings & OutputFlags & { token?: string | undefined },
    options: { mayBeNew?: boolean } = {},
  ): Session {
    const output = outputOf(flags)
    const settings = settingsOf(flags, options)
    const token = tokenFrom(flags.token)
    const apiKey = apiKeyFrom(flags)
    const send = { settings, version: this.config.version, attended: attended(settings), token, apiKey }
    let client: Client | undefined
    let stranger: Client | undefined
    return {
      settings,
      output,
      send,
      attended: send.attended,
      get client() {
        client ??= clientFor(send)
        return client
      },
      get stranger() {
        stranger ??= strangerClient(send)
        return stranger
      },
    }
  }
}
