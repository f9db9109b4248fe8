import type { Command } from '@oclif/core/command'
import { ApiCommand } from './command.ts'
import { booleanFlag, type FlagSet, textArg } from './flags.ts'
import type { ImportKind } from './import-kinds.ts'
import type { Settings } from './settings.ts'

type View = {
  summary: string
  description: string
  examples: string[]
  kind: () => Promise<ImportKind>
  /** Flags with values for rows that leave them out. */
  flags?: FlagSet
  dryRun: string
  ifNotExists: string
  /** What a row that leaves it out gets. */
  defaults(flags: Record<string, unknown>, settings: Settings): Record<string, unknown>
}

/** A command that creates a record for every row of a file. */
export const importCommand = (view: View): Command.Class =>
  class extends ApiCommand {
    static override summary = view.summary
    static override description = view.description
    static override examples = view.examples
    static override args = { file: textArg('File to read; - for standard input') }
    static override flags: FlagSet = {
      ...view.flags,
      'dry-run': booleanFlag({ description: view.dryRun }),
      'if-not-exists': booleanFlag({ description: view.ifNotExists }),
    }

    async run(): Promise<void> {
      const { args, flags } = await this.parse(this.ctor)
      const { importFile } = await import('./import.ts')
      const session = this.open(flags)
      await importFile(session, await view.kind(), String(args.file), {
        defaults: view.defaults(flags, session.settings),
        existing: flags['if-not-exists'] === true,
        dry: flags['dry-run'] === true,
      })
    }
  }
