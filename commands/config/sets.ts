import { command } from '../../src/cli/command.ts'
import { configuration } from '../../src/configuration/contract.ts'

export default command(configuration.sets, {
  examples: [
    'svc config sets\nNAME        OBJECTS  REVISION  APPLIED AT                APPLIED BY\nproduction  212      6f2c1e9   2026-01-31T12:00:00.000Z  ada@example.com',
  ],
  columns: ['name', 'objects', 'revision', 'appliedAt', 'appliedBy'],
})
