import { readActivity } from './activity.ts'
import { inventorySignature } from './changes.ts'
import { describe } from './description.ts'
import { readHostLogs } from './host-logs.ts'
import { readInventory } from './inventory.ts'
import { logsOfHost } from './live/host.ts'
import { startMetrics } from './metrics.ts'

/** What the agent asks the machine it runs on. */
export const thisMachine = () => ({
  describe,
  readInventory,
  inventorySignature,
  readActivity,
  readHostLogs,
  liveLogs: logsOfHost(),
  readMetrics: startMetrics(),
})
export type Machine = ReturnType<typeof thisMachine>
