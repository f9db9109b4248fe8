import { readdir, statfs } from 'node:fs/promises'
import os from 'node:os'
import si from 'systeminformation'
import type { Heartbeat } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'
import { bestEffort } from './best-effort.ts'
import { toGiB, toMiB } from './sizes.ts'

type Metrics = NonNullable<Heartbeat['metrics']>

/** Returns a reader of metrics; the CPU share is the average since the last reading, or since this call. */
export function startMetrics(): () => Promise<Metrics> {
  let before = cpuTimes()
  return async () => {
    const now = cpuTimes()
    const total = now.total - before.total
    const cpuPercent = total > 0 ? percent(1 - (now.idle - before.idle) / total) : undefined
    if (total > 0) before = now

    const [disk, processCount] = await Promise.all([
      bestEffort(systemDisk, 5000),
      bestEffort(countProcesses, 5000),
    ])
    const ramUsed = os.totalmem() - os.freemem()
    return withoutUndefined({
      cpuPercent,
      ramPercent: percent(ramUsed / os.totalmem()),
      ramUsedMb: toMiB(ramUsed),
      ...disk,
      processCount,
    })
  }
}

function cpuTimes(): { idle: number; total: number } {
  const sum = { idle: 0, total: 0 }
  for (const { times } of os.cpus()) {
    sum.idle += times.idle
    sum.total += times.user + times.nice + times.sys + times.idle + times.irq
  }
  return sum
}

/** The system volume, computed like df(1): blocks reserved for root count as neither used nor free. */
async function systemDisk(): Promise<Pick<Metrics, 'diskPercent' | 'diskUsedGb'>> {
  const { blocks, bfree, bavail, bsize } = await statfs(process.platform === 'win32' ? 'C:\\' : '/')
  const used = blocks - bfree
  return { diskPercent: percent(used / (used + bavail)), diskUsedGb: toGiB(used * bsize) }
}

async function countProcesses(): Promise<number> {
  if (process.platform !== 'linux') return (await si.processes()).all
  return (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry)).length
}

const percent = (share: number): number => Math.round(Math.min(1, Math.max(0, share)) * 10_000) / 100
