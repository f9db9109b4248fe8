import { auditCheckpoints } from '../../src/audit/checkpoints/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditCheckpoints.proof, {
  summary: 'Prove that an entry is in the audit chain, or with --older-size that the chain only grew',
  description:
    'A proof is as trustworthy as its checkpoint; svc audit key prints the keys that sign it. svc-audit(7) explains how to check a proof without svc.',
  args: ['id'],
  examples: [
    'svc audit proof 0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55 --json > entry.proof.json && jq .index,.size entry.proof.json\n16\n12345',
    'svc audit proof --org blue-bakery --older-size 12000 --jq "[.from, .to, (.path | length)] | @tsv"\n12000\t12345\t9',
  ],
})
