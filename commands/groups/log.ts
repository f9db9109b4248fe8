import { command } from '../../src/cli/command.ts'
import { deviceGroups } from '../../src/groups/contract.ts'

export default command(deviceGroups.log, {
  columns: ['createdAt', 'hostname', 'action', 'reason', 'deviceId'],
  examples: [
    'svc groups log "Old Windows" --columns createdAt,hostname,action,reason\nCREATED AT                HOSTNAME     ACTION  REASON\n2026-01-31T12:00:00.000Z  reception-1  added   filter_match',
    'svc groups log Reception --all -o ndjson',
  ],
})
