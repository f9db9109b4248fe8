import type { Inventory } from '../agents/contract.ts'
import { readDisks } from './disks.ts'
import { readHardware } from './hardware.ts'
import { readNetwork } from './network.ts'
import { known, part } from './part.ts'
import { readSoftware } from './software.ts'

/** This machine's inventory; a part that cannot be read is left out, so the service keeps what it knew. */
export async function readInventory(): Promise<Inventory> {
  const [hardware, network, disks, software] = await Promise.all([
    part(readHardware, 60_000),
    part(readNetwork),
    part(readDisks),
    part(readSoftware),
  ])
  return known({ hardware, network, disks, software })
}
