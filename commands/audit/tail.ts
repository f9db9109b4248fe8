import { filterFlags, tailAudit } from '../../src/cli/audit-tail.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import type { FlagSet } from '../../src/cli/flags.ts'
import { followFlags } from '../../src/cli/follow.ts'

export default class AuditTail extends ApiCommand {
  static override summary = 'Show the newest audit entries, and with -f new ones as they arrive'
  static override description =
    'Of --org, else of every chain you can read, each in its order. With --cursor-file every entry is printed once, over restarts of the service and of this command.'
  static override examples = [
    'svc audit tail -f --org blue-bakery\nTIMESTAMP                 USER EMAIL         ACTION                 RESOURCE TYPE   RESOURCE NAME  RESULT   ID\n2026-01-31T12:00:00.000Z  admin@example.com  enrollment_key.create  enrollment_key  Front desk     success  0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55',
    'svc audit tail -f --json --cursor-file /var/lib/siem/svc.cursor >> audit.ndjson',
    'svc audit tail -f --action user.login -n 0',
  ]
  static override flags: FlagSet = { ...filterFlags, ...followFlags }

  async run(): Promise<void> {
    const flags = (await this.parse(AuditTail)).flags as Record<string, unknown>
    await tailAudit(this.open(flags), flags)
  }
}
