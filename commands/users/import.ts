import { textFlag } from '../../src/cli/flags.ts'
import { importCommand } from '../../src/cli/import-command.ts'

export default importCommand({
  summary: 'Invite users from a CSV, JSON or NDJSON file',
  description:
    'Columns or fields: email, name, role, org, partner, orgAccess, selectedOrgs, sites, groups; several names in a cell are separated by semicolons. email and name are required, and role where --role is not given. Every row is checked before the first invitation is sent, and all faults are named with their rows and columns; the exit code is 0 when all of them are members or invited afterwards.',
  examples: [
    'svc users import staff.csv --org blue-bakery --role "Org Viewer" --if-not-exists',
    'Without sending anything\nsvc users import staff.csv --dry-run',
    "From a directory\nldapsearch-as-csv | svc users import - --org blue-bakery --role 'Org Viewer' --json",
  ],
  kind: async () => (await import('../../src/cli/import-kinds.ts')).userImport,
  flags: {
    role: textFlag('Role of rows without one (id or name)', 'ROLE'),
    partner: textFlag('Partner of rows without organization and partner (id, slug or name)', 'PARTNER'),
  },
  dryRun: 'Check every row and print who would be invited; send nothing',
  ifNotExists: 'Existing members and invitations are not a failure',
  defaults: ({ role, partner }, { org }) => ({ role, partner, org: org.value }),
})
