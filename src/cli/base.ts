import { Command } from '@oclif/core/command'
import type { Client } from '../core/client.ts'
import type { ApiClientOptions } from './api-client.ts'
import { exitCodes } from './exit-codes.ts'
import { type FlagSet, formerFlagsEnd, outputFlags } from './flags.ts'
import { type Output, printNote } from './print.ts'
import type { Settings } from './settings.ts'
import { clearStatus } from './stderr-notes.ts'

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
  /** The endpoints that it is for, as `routeOf` names them; `/docs` shows its first example with them. */
  static endpoints: readonly string[] = []

  override async init(): Promise<void> {
    await super.init()
    process.once('SIGINT', () => {
      clearStatus()
      process.exit(exitCodes.interrupted)
    })
  }

  /** A flag has aliases only where it had another spelling. Each works for two minor versions. */
  protected override warnIfFlagDeprecated(): void {
    for (const [name, { aliases = [] }] of Object.entries(this.ctor.flags ?? {})) {
      for (const former of aliases) {
        const isUsed = this.argv.some((word) => word === `--${former}` || word.startsWith(`--${former}=`))
        if (isUsed)
          printNote(
            `Warning: --${former} is deprecated and will be removed in ${formerFlagsEnd}: use --${name}`,
          )
      }
    }
  }

  /** From now on signals abort this instead of ending the process: the command first removes what it has made. */
  protected abortOnSignals(): AbortController {
    const interrupted = new AbortController()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.removeAllListeners(signal)
      process.on(signal, () => interrupted.abort())
    }
    return interrupted
  }
}
