import { LocalCommand } from '../src/cli/base.ts'
import { checkForUpdate } from '../src/cli/update-check.ts'

/** What a command starts in the background, at most once a day. Nobody reads what it would say. */
export default class UpdateCheck extends LocalCommand {
  static override hidden = true

  async run(): Promise<void> {
    // Nobody reads its output; the next command starts it again.
    await checkForUpdate().catch(() => {})
  }
}
