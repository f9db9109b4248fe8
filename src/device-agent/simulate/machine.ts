import type { Enrollment, Heartbeat, Inventory } from '../../agents/contract.ts'
import type { Plan } from './plan.ts'
import { oneOf, seededRandom, weightedPick } from './seeded-random.ts'

type SimulatedMachine = Pick<
  Enrollment,
  'hostname' | 'osType' | 'osVersion' | 'architecture' | 'deviceRole'
> & {
  osBuild: string
}

const systems: Record<Enrollment['osType'], { osVersion: string; osBuild: string }[]> = {
  linux: [
    { osVersion: 'Debian GNU/Linux 12 (bookworm)', osBuild: '6.1.0-37-amd64' },
    { osVersion: 'Ubuntu 24.04.2 LTS', osBuild: '6.8.0-62-generic' },
    { osVersion: 'Fedora Linux 42 (Server Edition)', osBuild: '6.14.9-300.fc42.x86_64' },
  ],
  windows: [
    { osVersion: 'Microsoft Windows 11 Pro', osBuild: '26100' },
    { osVersion: 'Microsoft Windows 10 Pro', osBuild: '19045' },
    { osVersion: 'Microsoft Windows Server 2022 Standard', osBuild: '20348' },
  ],
  macos: [
    { osVersion: 'macOS 15.5 (Sequoia)', osBuild: '24F74' },
    { osVersion: 'macOS 14.7 (Sonoma)', osBuild: '23H124' },
  ],
}

const packages = ['openssl', 'curl', 'git', 'nano', 'rsync', 'python3', 'sqlite3', 'tar', 'zlib', 'less']

/** The machine of a simulated agent: always the same for a seed and a number. */
export function machineOf(
  { seed, platforms }: Pick<Plan, 'seed' | 'platforms'>,
  n: number,
): SimulatedMachine {
  const { osType, architecture } = weightedPick(platforms, seededRandom(seed, n, 'platform'))
  const system = oneOf(systems[osType], seededRandom(seed, n, 'system'))
  const isServer = osType === 'linux' || system.osVersion.includes('Server')
  const deviceRole = isServer ? 'server' : 'workstation'
  return { hostname: `sim-${String(n).padStart(5, '0')}`, osType, architecture, ...system, deviceRole }
}

export function inventoryOf(plan: Pick<Plan, 'seed' | 'platforms'>, n: number): Inventory {
  const { osType } = machineOf(plan, n)
  const cpuCores = oneOf([2, 4, 8, 16], seededRandom(plan.seed, n, 'cores'))
  const disk = diskOf(plan.seed, n)
  const bytes = [n >> 16, n >> 8, n].map((byte) => byte & 255)
  const windows = osType === 'windows'
  return {
    hardware: {
      manufacturer: 'QEMU',
      model: 'Standard PC (Q35 + ICH9, 2009)',
      cpuModel: 'QEMU Virtual CPU',
      serialNumber: `SIM-${n}`,
      cpuCores,
      cpuThreads: cpuCores * 2,
      ramTotalMb: ramOf(plan.seed, n),
      diskTotalGb: disk,
    },
    network: [
      {
        interfaceName: windows ? 'Ethernet' : osType === 'macos' ? 'en0' : 'eth0',
        macAddress: ['02', '00', '00', ...bytes.map((byte) => byte.toString(16).padStart(2, '0'))].join(':'),
        ipAddress: `10.${bytes.join('.')}`,
        ipType: 'ipv4',
        isPrimary: true,
      },
    ],
    disks: [
      {
        mountPoint: windows ? 'C:' : '/',
        fsType: windows ? 'NTFS' : osType === 'macos' ? 'apfs' : 'ext4',
        totalGb: disk,
        usedGb: round(disk * usedPart(plan.seed, n)),
        usedPercent: round(100 * usedPart(plan.seed, n)),
      },
    ],
    software: packages.map((name) => ({
      name,
      version: `${1 + Math.floor(5 * seededRandom(plan.seed, n, name))}.${Math.floor(20 * seededRandom(plan.seed, n, `${name}.`))}`,
    })),
  }
}

/** The metrics of the `beat`-th heartbeat: they oscillate, differently for each machine. */
export function metricsOf(seed: number, n: number, beat: number): NonNullable<Heartbeat['metrics']> {
  const wave = Math.sin(beat / 9 + 6 * seededRandom(seed, n, 'wave'))
  const ram = 0.5 + 0.3 * seededRandom(seed, n, 'ram') + 0.1 * wave
  return {
    cpuPercent: round(30 + 20 * wave + 25 * seededRandom(seed, n + beat, 'cpu')),
    ramPercent: round(100 * ram),
    ramUsedMb: Math.round(ramOf(seed, n) * ram),
    diskPercent: round(100 * usedPart(seed, n)),
    diskUsedGb: round(diskOf(seed, n) * usedPart(seed, n)),
    processCount: 150 + Math.floor(200 * seededRandom(seed, n, 'processes')) + Math.round(10 * wave),
  }
}

const ramOf = (seed: number, n: number): number =>
  oneOf([8192, 16_384, 32_768], seededRandom(seed, n, 'memory'))
const diskOf = (seed: number, n: number): number =>
  oneOf([128, 256, 512, 1024], seededRandom(seed, n, 'disk'))
const usedPart = (seed: number, n: number): number => 0.2 + 0.6 * seededRandom(seed, n, 'used')
const round = (value: number): number => Math.round(value * 100) / 100
