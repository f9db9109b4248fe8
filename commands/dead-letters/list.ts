import { command } from '../../src/cli/command.ts'
import { deadLetters } from '../../src/service/dead-letters/contract.ts'

export default command(deadLetters.list, {
  columns: ['number', 'source', 'orgId', 'bytes', 'createdAt', 'reason'],
  description:
    'What the database did not take, and was set aside so that it holds up nothing else: entries of the audit log, in whose place their chain says audit.entry.set_aside, and events that a webhook is told of. Needs a second factor, and system scope. Deliveries that no receiver took are in svc webhooks dead.',
  examples: [
    'svc dead-letters --source events --columns number,source,bytes,reason\nNUMBER  SOURCE  BYTES  REASON\n17      events  412    The database refused it (23514)',
    'svc dead-letters -q --all',
  ],
})
