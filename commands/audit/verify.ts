import { boolean, integer, string } from '@oclif/core/flags'
import { auditLogs } from '../../src/audit/contract.ts'
import { toPin } from '../../src/audit/verifier/pins.ts'
import { verifyRanges } from '../../src/audit/verifier/ranges.ts'
import { readKeys } from '../../src/audit/verifier/signatures.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import { verify } from '../../src/cli/audit-verify.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class AuditVerify extends ApiCommand {
  static override endpoints = ['GET /audit-logs/chains']
  static override summary = 'Recompute an audit chain and report whether anyone tampered with it'
  static override description =
    'Reads a file written by svc audit export, plain or gzipped, without a service or trust in one; without a file, the chain of --org, or every chain you can read. --key checks who signed it, --pin that it extends the chain verified before; man/svc-audit.7 explains what each shows. Exit 0 sound, 1 tampered, 9 cannot tell.'
  static override examples = [
    'svc audit verify audit.ndjson --key service.key\nSound: audit.ndjson, 12 345 entries, up to 5f3c0a9be1d2, signed 2026-01-31T12:00:00.000Z',
    'svc audit verify --org blue-bakery\nTAMPERED: Blue Bakery, entry 17, altered: Entry 17 was altered: its checksum does not match its text\n  id 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55, action enrollment_key.create, 2026-01-31T12:00:00.000Z',
    'svc audit verify --pin ~/audit-pins.json\nSound: Blue Bakery, 12 345 entries, up to 5f3c0a9be1d2, signature not checked: give --key, pinned without comparison: there was no pin before',
    'svc audit verify --json',
  ]
  static override args = { file: textArg('File to verify; - for standard input', false) }
  static override flags = {
    key: string({
      description: 'File of trusted keys, one a line, as svc audit key prints them or in base64',
      helpValue: 'FILE',
    }),
    pin: string({
      description: 'File that stores the last sound state, to detect a history that shrank or was rewritten',
      helpValue: 'FILE',
    }),
    tree: boolean({ description: 'Recompute the Merkle tree as well, for about twice the time' }),
    threads: integer({
      description: 'Threads for a file; by default one per processor, one for a small file',
      helpValue: 'N',
      min: 1,
      max: 64,
    }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AuditVerify)
    const begin = (trust: ConstructorParameters<typeof ChainVerifier>[0]) => new ChainVerifier(trust)
    const arithmetic = { begin, verifyRanges, readKeys, pinOf: toPin }
    await verify(this.open(flags), auditLogs, arithmetic, args.file as string | undefined, flags)
  }
}
