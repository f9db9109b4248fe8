import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.list, {
  columns: ['id', 'slug', 'name', 'type', 'plan', 'status'],
  secondary: ['plan', 'type'],
  examples: [
    'svc partners\nID                                    SLUG  NAME     TYPE  PLAN  STATUS\n0197c1c4-6f10-7b0a-8a52-5b1f6e0c9d01  acme  Acme IT  msp   pro   active',
    'svc partners --all -o ndjson',
  ],
})
