import { command } from '../../src/cli/command.ts'
import { scripts } from '../../src/scripts/contract.ts'

export default command(scripts.list, {
  columns: ['id', 'name', 'language', 'osTypes', 'category', 'version', 'orgId', 'partnerId'],
  examples: [
    'svc scripts --org blue-bakery --columns id,name,language,version\nID                                    NAME                   LANGUAGE  VERSION\n0197c1f0-5b3a-7c11-9e42-1a2b3c4d5e6f  Clear temporary files  bash      3',
    'svc scripts --os windows --search printer -q',
  ],
})
