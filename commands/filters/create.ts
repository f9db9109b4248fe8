import { command } from '../../src/cli/command.ts'
import { conditionFieldFlags, formatFilter } from '../../src/cli/filters.ts'
import { filters } from '../../src/filters/contract.ts'

export default command(filters.create, {
  customFlags: conditionFieldFlags(true),
  existing: { list: filters.list, within: ['orgId'] },
  format: formatFilter,
  description: 'svc help filters explains the syntax, svc filters preview lists the devices that match.',
  examples: [
    "svc filters create --name 'Stale machines' --where 'lastSeenAt not within 30 days' --org blue-bakery -q\n0197c1c9-51d2-7a40-9e13-6b7c8d9e0f11",
    'svc filters create --name Servers --file servers.json',
  ],
})
