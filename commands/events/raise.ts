import { command } from '../../src/cli/command.ts'
import { events } from '../../src/events/contract.ts'

export default command(events.create, {
  format: ({ id, type }) => `${String(type)} raised as ${String(id)}\n`,
  description:
    'For events of other systems: patches, policies, automations, remote sessions. Needs a system or partner administrator.',
  examples: [
    'svc events raise --org blue-bakery --type patch.installed --data \'{"patchId": "KB5031356"}\'\npatch.installed raised as 0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f',
    'svc events raise --org blue-bakery --type policy.violation --data @event.json -q',
  ],
})
