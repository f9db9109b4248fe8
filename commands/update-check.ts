import { LocalCommand } from '../src/cli/base.ts'
import { checkForUpdate } from '../src/cli/update-check.ts'

/** What a command starts in the background, at most once a day. Nobody reads what it would say. */
export default class UpdateCheck extends LocalCommand {
  static override hidden = true

  async run(): Promise<void> {
    await checkForUpdate().catch(() => {})
  }
}
