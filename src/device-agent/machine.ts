import { readActivity } from './activity.ts'
import { describeMachine } from './description.ts'
import { readHostLogs } from './host-logs.ts'
import { readInventory } from './inventory.ts'
import { inventorySignature } from './inventory-signature.ts'
import { hostLiveLogs } from './live/host.ts'
import { startMetrics } from './metrics.ts'

/** The parts of the machine that the agent reads. */
export const thisMachine = () => ({
  describe: describeMachine,
  readInventory,
  inventorySignature,
  readActivity,
  readHostLogs,
  liveLogs: hostLiveLogs(),
  readMetrics: startMetrics(),
})
export type Machine = ReturnType<typeof thisMachine>
