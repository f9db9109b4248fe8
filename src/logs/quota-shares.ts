import type { Storage } from '../storage/open.ts'
import { type ByteQuota, equalShare } from './quota.ts'

type Full = { id: string; org_id: string }

/**
 * Sums up the bytes of each organization from its devices' counts and updates the quota. Returns the devices
 * above their quota, and the total bytes.
 */
export async function computeShares(
  storage: Storage,
  count: 'log_bytes' | 'command_bytes',
  quota: ByteQuota,
): Promise<{ bytes: number; full: Full[] }> {
  const { perDevice, perOrg } = quota.limits
  const sums = await storage.heavy
    .selectFrom('devices')
    .select((eb) => ['org_id', eb.fn.sum<number>(count).as('bytes'), eb.fn.max<number>(count).as('largest')])
    .where(count, '>', 0)
    .groupBy('org_id')
    .execute()
  const shares = new Map<string, number>()
  const full: Full[] = []
  for (const { org_id, bytes, largest } of sums) {
    if (bytes <= perOrg && largest <= perDevice) continue
    const devices = await storage.heavy
      .selectFrom('devices')
      .select(['id', 'org_id', `${count} as kept`])
      .where('org_id', '=', org_id)
      .where(count, '>', 0)
      .execute()
    const share = equalShare(
      devices.map(({ kept }) => Math.min(kept, perDevice)),
      perOrg,
    )
    if (share < perDevice) shares.set(org_id, share)
    full.push(...devices.filter(({ kept }) => kept > Math.min(share, perDevice)))
  }
  quota.setShares(shares)
  return { bytes: sums.reduce((sum, { bytes }) => sum + bytes, 0), full }
}
