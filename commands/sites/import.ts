import { importCommand } from '../../src/cli/import-command.ts'

export default importCommand({
  summary: 'Create sites from a CSV, JSON or NDJSON file',
  description:
    'Columns or fields: name, org, timezone, address, contact, settings. Only name is required: rows without an organization belong to --org. Every row is checked before the first one is sent, and all faults are named with their rows and columns; the exit code is 0 when all sites exist afterwards.',
  examples: [
    'svc sites import sites.csv --org blue-bakery --if-not-exists',
    'Without sending anything\nsvc sites import sites.csv --dry-run',
    'export-crm | svc sites import - --json',
  ],
  kind: async () => (await import('../../src/cli/import-kinds.ts')).siteImport,
  dryRun: 'Check every row and print what would be created; send nothing',
  ifNotExists: 'Existing sites are not a failure',
  defaults: (_, { org }) => ({ org: org.value }),
})
