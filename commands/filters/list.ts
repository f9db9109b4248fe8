import { command } from '../../src/cli/command.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.list, {
  columns: ['id', 'name', 'description', 'orgId', 'updatedAt'],
  examples: [
    'svc filters --columns id,name\nID                                    NAME\n0197c1c9-51d2-7a40-9e13-6b7c8d9e0f11  Stale machines',
    'svc filters --search stale -q\n0197c1c9-51d2-7a40-9e13-6b7c8d9e0f11',
  ],
})
