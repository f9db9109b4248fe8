import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.list, {
  columns: ['id', 'name', 'status', 'events', 'lastSuccessAt', 'url'],
  examples: [
    'svc webhooks --org blue-bakery --columns id,name,status\nID                                    NAME           STATUS\n0197c1f2-77d0-7e24-b0c5-6f5e4d3c2b1a  Ticket system  active',
    'svc webhooks --status failed -o ndjson',
  ],
})
