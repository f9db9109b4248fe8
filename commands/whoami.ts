import { ApiCommand } from '../src/cli/command.ts'
import { runRecordCommand } from '../src/cli/record-command.ts'
import { identityEntry } from '../src/cli/session.ts'

export default class Whoami extends ApiCommand {
  static override endpoints = ['GET /auth/me', 'GET /auth/caller']
  static override summary = 'Show whose credential is used, with which scope and permissions'
  static override description =
    'Of a signed-in user also the memberships; of an API key or a CI job its name, and what it may do.'
  static override examples = [
    'svc whoami --columns user.email,scope --no-header\nadmin@example.com  system',
    'svc whoami --json',
    'svc whoami -q\n0197c1c3-5e44-7a1b-8c30-2d4e6f8a0b11',
    "An API key\nSVC_API_KEY=$(cat ci.key) svc whoami --jq '.name, .permissions[]'\nci\ndevices:read",
  ]

  async run(): Promise<void> {
    const { args, flags } = await this.parse(Whoami)
    const session = this.open(flags)
    const entry = await identityEntry(session)
    await runRecordCommand(session, entry, { examples: [] }, async () => ({}), { args, flags, id: 'whoami' })
  }
}
