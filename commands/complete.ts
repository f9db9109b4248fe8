import { Command } from '@oclif/core/command'
import type { Shell } from '../src/cli/completion/scripts.ts'
import type { Program } from '../src/cli/program.ts'

/** What completion scripts call: `svc complete SHELL -- WORDS`. It is silent when it knows nothing. */
export default class Complete extends Command {
  static override hidden = true
  static override strict = false

  async run(): Promise<void> {
    const [shell, , ...words] = this.argv
    try {
      if (shell === 'refresh') {
        const { refreshNames } = await import('../src/cli/completion/record-names.ts')
        await refreshNames(JSON.parse(words[0]!))
        return
      }
      const { complete } = await import('../src/cli/completion/complete.ts')
      const lines = await complete(this.config as Program, shell as Shell, words)
      process.stdout.write(lines.map((line) => `${line}\n`).join(''))
    } catch {
      // An error message would stand in the middle of the command line.
    }
  }
}
