import { ChainVerifier } from '../../src/audit/chain.ts'
import { auditLogs } from '../../src/audit/contract.ts'
import { verifyChains, verifyFile } from '../../src/cli/audit.ts'
import { ApiCommand } from '../../src/cli/base.ts'
import { argFor } from '../../src/cli/flags.ts'

export default class AuditVerify extends ApiCommand {
  static override summary = 'Recompute an audit chain and say whether anyone tampered with it'
  static override description =
    'Reads a file written by svc audit export, with no service and no trust in one; without a file, the chain of --org, or every chain you can read. Exit 0 sound, 1 tampered, 9 cannot tell.'
  static override examples = [
    'svc audit verify audit.ndjson\nSound: audit.ndjson, 12 345 entries, up to 5f3c0a9be1d2',
    'svc audit verify --org blue-bakery\nTAMPERED: Blue Bakery, entry 17: Entry 17 was altered: its checksum does not match its text\n  id 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55, action enrollment_key.create, 2026-01-31T12:00:00.000Z',
    'svc audit verify --json',
  ]
  static override args = { file: argFor('File to verify; - for standard input', false) }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AuditVerify)
    const run = this.open(flags)
    const begin = () => new ChainVerifier()
    const file = args.file as string | undefined
    await (file === undefined ? verifyChains(run, auditLogs, begin) : verifyFile(run, file, begin))
  }
}
