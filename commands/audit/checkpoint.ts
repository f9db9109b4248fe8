import { auditCheckpoints } from '../../src/audit/checkpoints/contract.ts'
import { command } from '../../src/cli/command.ts'

export default command(auditCheckpoints.checkpoint, {
  summary: 'Print a signed checkpoint of the current audit chain',
  description:
    'Store it out of reach of the service: a later proof or export shows whether the chain still begins with the signed entries. Without --org: your own organization, or the system chain in system scope.',
  examples: [
    'svc audit checkpoint --org blue-bakery > blue-bakery.checkpoint && head -n 2 blue-bakery.checkpoint\nsvc/audit/0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55\n12345',
    'svc audit checkpoint --jq .seq\n12345',
  ],
  multiline: true,
  format: ({ checkpoint }) => String(checkpoint),
})
