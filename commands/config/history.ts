import { command } from '../../src/cli/command.ts'
import { configurationApplies } from '../../src/configuration/history/contract.ts'

export default command(configurationApplies.list, {
  summary: 'List what was applied, newest first: the last 100 applies that changed something',
  description:
    'With who applied it, from which revision of the files, and how many objects it made, changed, deleted and took over. svc config rollback takes the id.',
  examples: [
    'svc config history\nAPPLIED AT  TOTALS              REVISION  SET      APPLIED BY       ID\n3m ago      create 2, delete 1  6f2c1e9   default  ada@example.com  0197c1c8…',
    'svc config history --columns id,appliedAt,totals.delete',
  ],
  columns: ['id', 'appliedAt', 'totals', 'revision', 'set', 'appliedBy'],
})
