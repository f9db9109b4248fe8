import { command } from '../../src/cli/command.ts'
import { configurationApplies } from '../../src/configuration/history/contract.ts'

export default command(configurationApplies.list, {
  summary: 'List what was applied, newest first: the last 100 applies that changed something',
  description:
    'With who applied it, from which revision of the files, and how many objects it made, changed, deleted and took over. svc config rollback takes the id.',
  examples: [
    'svc config history\nID        APPLIED AT                APPLIED BY       SET      REVISION\n0197c1c8  2026-01-31T12:00:00.000Z  ada@example.com  default  6f2c1e9',
    'svc config history --columns id,appliedAt,set,totals.delete',
  ],
  columns: ['id', 'appliedAt', 'appliedBy', 'set', 'revision'],
})
