import { boolean, string } from '@oclif/core/flags'
import { auditLogs } from '../../src/audit/contract.ts'
import { exportChain, exportEntries, exportFlags } from '../../src/cli/audit-export.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import type { FlagSet } from '../../src/cli/flags.ts'

export default class AuditExport extends ApiCommand {
  static override endpoints = ['GET /audit-logs/chain', 'GET /audit-logs/export', 'POST /audit-logs/export']
  static override summary = 'Write the audit chain of an organization, or its entries as CSV or JSON'
  static override description =
    'Without --format, or with --bundle: the complete chain, oldest first, with the signed checkpoint and everything else that svc audit verify needs to work without a service; without --org that of your own organization, or the system chain in system scope. With --format: the entries that match the filters, newest first, at most 10,000 at a time. Exports are audited.'
  static override examples = [
    'svc audit export --org blue-bakery --bundle --out-file audit.ndjson\n12 345 entries written to audit.ndjson',
    'svc audit export --org blue-bakery --format csv --action user.login --since 2026-01-01T00:00:00Z --out-file logins.csv\n812 entries written to logins.csv',
    'svc audit export --org blue-bakery | gzip > audit.ndjson.gz',
  ]
  static override flags: FlagSet = {
    ...exportFlags,
    bundle: boolean({
      description: 'The complete chain, as without --format',
      exclusive: ['format'],
    }) as unknown as FlagSet[string],
    'out-file': string({
      description: 'New file to write, mode 0600; by default standard output',
      helpValue: 'FILE',
    }) as unknown as FlagSet[string],
  }

  async run(): Promise<void> {
    const flags = (await this.parse(AuditExport)).flags as Record<string, unknown>
    const session = this.open(flags)
    const outFile = flags['out-file'] as string | undefined
    await (flags.format === undefined
      ? exportChain(session, auditLogs, outFile)
      : exportEntries(session, flags, outFile))
  }
}
