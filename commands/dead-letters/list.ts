import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.list, {
  columns: ['number', 'source', 'orgId', 'bytes', 'createdAt', 'reason'],
  description:
    'Rows that the database refused, stored here so that they block nothing else: audit entries, in whose place their chain has audit.entry.set_aside, and events for webhooks. Needs a second factor, and system scope. svc webhooks dead lists deliveries that no receiver accepted.',
  examples: [
    'svc dead-letters --source events --columns number,source,bytes,reason\nNUMBER  SOURCE  BYTES  REASON\n17      events  412    The database refused it (23514)',
    'svc dead-letters -q --all',
  ],
})
