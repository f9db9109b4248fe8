import type { Inventory } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'
import { bestEffort } from './best-effort.ts'
import { readDisks } from './disks.ts'
import { readHardware } from './hardware.ts'
import { readNetwork } from './network.ts'
import { readSoftware } from './software.ts'

/** This machine's inventory; a part that cannot be read is omitted, and the service retains the last one. */
export async function readInventory(): Promise<Inventory> {
  const [hardware, network, disks, software] = await Promise.all([
    bestEffort(readHardware, 60_000),
    bestEffort(readNetwork),
    bestEffort(readDisks),
    bestEffort(readSoftware),
  ])
  return withoutUndefined({ hardware, network, disks, software })
}
