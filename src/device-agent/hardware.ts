import os from 'node:os'
import si from 'systeminformation'
import type { HardwareReport } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'
import { bestEffort } from './best-effort.ts'
import { toGiB, toMiB } from './sizes.ts'

export async function readHardware(): Promise<HardwareReport> {
  const [system, board, bios, cpu, graphics, diskTotalGb] = await Promise.all([
    bestEffort(() => si.system()),
    bestEffort(() => si.baseboard()),
    bestEffort(() => si.bios()),
    bestEffort(() => si.cpu()),
    bestEffort(() => si.graphics()),
    bestEffort(diskTotal),
  ])
  return withoutUndefined({
    manufacturer: cleanFirmwareText(system?.manufacturer),
    model: cleanFirmwareText(system?.model),
    serialNumber: cleanFirmwareText(system?.serial),
    cpuModel:
      cleanFirmwareText(os.cpus()[0]?.model) ?? cleanFirmwareText(cpu && `${cpu.manufacturer} ${cpu.brand}`),
    cpuCores: counted(cpu?.physicalCores),
    cpuThreads: counted(os.cpus().length),
    ramTotalMb: toMiB(os.totalmem()),
    diskTotalGb,
    gpuModel: cleanFirmwareText(graphics?.controllers[0]?.model),
    motherboardManufacturer: cleanFirmwareText(board?.manufacturer),
    motherboardModel: cleanFirmwareText(board?.model),
    biosVersion: cleanFirmwareText(bios?.version),
  })
}

/** Capacity of the fixed disks in GiB, without removable and compressed-memory devices. */
async function diskTotal(): Promise<number | undefined> {
  const devices = await si.blockDevices()
  const fixed = devices.filter(
    ({ type, removable, name }) => type === 'disk' && !removable && !/^zram/.test(name),
  )
  const bytes = fixed.reduce((sum, { size }) => sum + (size || 0), 0)
  return bytes > 0 ? toGiB(bytes) : undefined
}

// Placeholders in firmware without vendor data, and those of systeminformation.
const fillers =
  /^(|-|unknown|none|n\/a|not (specified|applicable|available)|default string|to be filled by o\.?e\.?m\.?|o\.?e\.?m\.?|system (serial number|manufacturer|product name)|computer|docker container)$/i

/** Text from the firmware, or undefined for a placeholder. */
export function cleanFirmwareText(text: string | undefined): string | undefined {
  const clean = (text ?? '')
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, 255)
  return fillers.test(clean) ? undefined : clean
}

const counted = (count: number | undefined): number | undefined =>
  Number.isInteger(count) && count! > 0 ? count : undefined
