import { readFileSync } from 'node:fs'
import os from 'node:os'
import si from 'systeminformation'
import type { InterfaceReport } from '../agents/contract.ts'
import { bestEffort } from './best-effort.ts'

const noMac = '00:00:00:00:00:00'

/** One row per address; the interface of the default route comes first and is the primary one. */
export async function readNetwork(): Promise<InterfaceReport[]> {
  const primary = await bestEffort(() =>
    process.platform === 'linux' ? defaultRouteOfLinux() : si.networkInterfaceDefault(),
  )
  const rows = Object.entries(os.networkInterfaces()).flatMap(([interfaceName, addresses = []]) =>
    addresses.map(
      ({ address, family, mac }): InterfaceReport => ({
        interfaceName,
        ...(mac && mac !== noMac && { macAddress: mac }),
        ipAddress: address,
        ipType: family.toLowerCase(),
        isPrimary: interfaceName === primary,
      }),
    ),
  )
  return rows.sort((a, b) => Number(b.isPrimary) - Number(a.isPrimary))
}

function defaultRouteOfLinux(): string | undefined {
  return (
    defaultRoute(readFileSync('/proc/net/route', 'utf8')) ??
    defaultRoute6(readFileSync('/proc/net/ipv6_route', 'utf8'))
  )
}

// Flags from linux/route.h.
const up = 0x1
const reject = 0x200

type Route = { name: string; flags: number; metric: number }

const cheapest = (routes: Route[]): string | undefined =>
  routes
    .filter(({ flags }) => (flags & up) !== 0 && (flags & reject) === 0)
    .sort((a, b) => a.metric - b.metric)[0]?.name

/** Interface of the default route in the text of /proc/net/route. */
export function defaultRoute(table: string): string | undefined {
  const rows = table.split('\n').map((line) => line.trim().split(/\s+/))
  return cheapest(
    rows
      .filter(([, destination, , , , , , mask]) => destination === '00000000' && mask === '00000000')
      .map(([name = '', , , flags = '', , , metric]) => ({
        name,
        flags: Number.parseInt(flags, 16),
        metric: Number(metric),
      })),
  )
}

/** The same in /proc/net/ipv6_route. */
export function defaultRoute6(table: string): string | undefined {
  const rows = table.split('\n').map((line) => line.trim().split(/\s+/))
  return cheapest(
    rows
      .filter(
        ([destination = '', prefix, , , , , , , , name]) =>
          /^0{32}$/.test(destination) && prefix === '00' && name !== 'lo',
      )
      .map((row) => ({
        name: row[9] ?? '',
        flags: Number.parseInt(row[8] ?? '', 16),
        metric: Number.parseInt(row[5] ?? '', 16),
      })),
  )
}
