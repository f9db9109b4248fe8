import { command } from '../../src/cli/command.ts'
import { devices } from '../../src/devices/contract.ts'

export default command(devices.list, {
  columns: ['id', 'hostname', 'displayName', 'status', 'osType', 'osVersion', 'tags', 'lastSeenAt'],
  secondary: ['osType', 'osVersion', 'tags'],
  examples: [
    'svc devices --org blue-bakery --status offline\nID                                    HOSTNAME     DISPLAY NAME  STATUS   OS TYPE  OS VERSION  TAGS        LAST SEEN AT\n0197c1c7-2e61-7a9b-9c10-3d5f7b9e1f44  reception-1  Front desk    offline  linux    Debian 12   front, pos  2026-01-31T12:00:00.000Z',
    'svc devices --site "Main Office" --tag pos --search recep -q\n0197c1c7-2e61-7a9b-9c10-3d5f7b9e1f44',
    'Every device, page by page\nsvc devices --all -o ndjson > devices.ndjson',
  ],
})
