import { Command } from '@oclif/core/command'
import type { Client } from '../core/client.ts'
import { type ApiClientOptions, anonymousClient, authenticatedClient } from './api-client.ts'
import { isInteractive, tokenSource } from './ask.ts'
import { exitCodes } from './exit-codes.ts'
import { connectionFlags, type FlagSet, outputFlags } from './flags.ts'
import { type Output, type OutputFlags, parseOutputFlags } from './print.ts'
import { apiKeyFrom, type FlagSettings, resolveSettings, type Settings } from './settings.ts'

export type CommandContext = {
  settings: Settings
  output: Output
  /** A person can be prompted. */
  interactive: boolean
  client: Client
  /** Without credentials. */
  anonymous: Client
  clientOptions: ApiClientOptions
}

/** Every command that is not a daemon: output flags, and Ctrl-C exits immediately with 130. */
export abstract class LocalCommand extends Command {
  static override baseFlags: FlagSet = outputFlags

  override async init(): Promise<void> {
    await super.init()
    process.once('SIGINT', () => process.exit(exitCodes.interrupted))
  }
}

/** A command that talks to a service. */
export abstract class ApiCommand extends LocalCommand {
  static override baseFlags: FlagSet = { ...outputFlags, ...connectionFlags }

  /** `mayBeNew`: the context of the flags need not exist yet. */
  protected open(
    flags: FlagSettings & OutputFlags & { token?: string | undefined },
    options: { mayBeNew?: boolean } = {},
  ): CommandContext {
    const output = parseOutputFlags(flags)
    const settings = resolveSettings(flags, options)
    const token = tokenSource(flags.token)
    const apiKey = apiKeyFrom(flags)
    const clientOptions = {
      settings,
      version: this.config.version,
      interactive: isInteractive(settings),
      token,
      apiKey,
    }
    let client: Client | undefined
    let anonymous: Client | undefined
    return {
      settings,
      output,
      clientOptions,
      interactive: clientOptions.interactive,
      get client() {
        client ??= authenticatedClient(clientOptions)
        return client
      },
      get anonymous() {
        anonymous ??= anonymousClient(clientOptions)
        return anonymous
      },
    }
  }
}
