import { textFlag } from '../../src/cli/flags.ts'
import { importCommand } from '../../src/cli/import-command.ts'

export default importCommand({
  summary: 'Create organizations from a CSV, JSON or NDJSON file',
  description:
    'Columns or fields: name, slug, partner, type, status, maxDevices, contractStart, contractEnd, settings. Only name is required: a missing slug is derived from it. Every row is checked before the first one is sent; the exit code is 0 when all of them exist afterwards.',
  examples: [
    'svc orgs import customers.csv\n2 created',
    'Without failing on existing ones\nsvc orgs import customers.csv --if-not-exists',
    'In system scope, from another program\nexport-crm | svc orgs import - --partner acme --json',
    'svc orgs import customers.ndjson --dry-run',
  ],
  kind: async () => (await import('../../src/cli/import-kinds.ts')).organizationImport,
  flags: {
    partner: textFlag('Parent partner of rows without one (id, slug or name)', 'PARTNER'),
  },
  dryRun: 'Check every row and print what would be created; send nothing',
  ifNotExists: 'Existing organizations are not a failure',
  defaults: ({ partner }) => ({ partner }),
})
