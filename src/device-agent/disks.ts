import si from 'systeminformation'
import type { DiskReport } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'
import { bestEffort } from './best-effort.ts'
import { toGiB } from './sizes.ts'

// Images and layers: always full, or a second view of a disk that is already listed.
const notStorage = /^(squashfs|iso9660|udf|erofs|tmpfs|devtmpfs|ramfs|efivarfs|fuse\.snapfuse)$/

/** The mounted file systems; a device mounted more than once is listed at its shortest mount point. */
export async function readDisks(): Promise<DiskReport[]> {
  const [all, disks] = await Promise.all([si.fsSize(), bestEffort(() => si.diskLayout(), 5000)])
  const mounted = all.filter(
    ({ type, size, mount }) => size > 0 && !notStorage.test(type) && !(type === 'overlay' && mount !== '/'),
  )
  mounted.sort((a, b) => a.mount.length - b.mount.length || (a.mount < b.mount ? -1 : 1))
  const seen = new Set<string>()
  const distinct = mounted.filter(({ fs }) => !fs.startsWith('/dev/') || (!seen.has(fs) && seen.add(fs)))
  return distinct.map(({ fs, type, size, used, available, use, mount }) =>
    withoutUndefined({
      mountPoint: mount.slice(0, 1024),
      device: fs.slice(0, 255),
      fsType: type.slice(0, 50),
      totalGb: toGiB(size),
      usedGb: toGiB(used),
      freeGb: toGiB(available),
      usedPercent: Math.min(100, use),
      health: diskHealthOf(fs, disks ?? []),
    }),
  )
}

/** The SMART status of a disk; undefined without permission to read it. */
export function diskHealthOf(
  fs: string,
  disks: readonly { device: string; smartStatus: string }[],
): string | undefined {
  const isOn = (device: string): boolean =>
    device !== '' && fs.startsWith(device) && /^(p?\d+)?$/.test(fs.slice(device.length))
  const disk = disks.find(({ device }) => isOn(device))
  const status = disk?.smartStatus.toLowerCase() ?? ''
  return status === '' || status === 'unknown' ? undefined : status.slice(0, 50)
}
