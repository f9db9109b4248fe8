import { prune } from '../../src/cli/audit-retention.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import { booleanFlag, deleteFlags, type FlagSet } from '../../src/cli/flags.ts'

export default class AuditPrune extends ApiCommand {
  static override endpoints = ['POST /audit-logs/retention/run']
  static override summary = 'Delete the audit entries beyond their retention now'
  static override description =
    'The service does this once a day; see svc audit retention. The beginning of the log is deleted; a signed anchor stands for it, so that the rest still verifies. Without --org: your own organization, or the system chain in system scope.'
  static override examples = [
    'svc audit prune --org blue-bakery --dry-run\n48 211 entries, up to 2025-01-31T11:59:58.112Z would go',
    'svc audit prune --org blue-bakery --yes\n48 211 entries deleted; the log begins after entry 48 211',
  ]
  static override flags: FlagSet = {
    yes: deleteFlags.yes!,
    'dry-run': booleanFlag({ description: 'Show what would be deleted, and delete nothing' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AuditPrune)
    await prune(this.open(flags), flags as Record<string, boolean | undefined>)
  }
}
