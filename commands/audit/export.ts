import { string } from '@oclif/core/flags'
import { auditLogs } from '../../src/audit/contract.ts'
import { exportChain } from '../../src/cli/audit.ts'
import { ApiCommand } from '../../src/cli/base.ts'

export default class AuditExport extends ApiCommand {
  static override summary = 'Write the audit chain of an organization, oldest first, as it is verified'
  static override description =
    'Without --org: the chain of your own organization, or the system chain in system scope.'
  static override examples = [
    'svc audit export --org blue-bakery --out-file audit.ndjson\n12 345 entries written to audit.ndjson',
    'svc audit export --org blue-bakery | gzip > audit.ndjson.gz',
  ]
  static override flags = {
    'out-file': string({
      description: 'New file to write, mode 0600; standard output without it',
      helpValue: 'FILE',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AuditExport)
    await exportChain(this.open(flags), auditLogs, flags['out-file'])
  }
}
