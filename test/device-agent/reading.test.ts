import { describe, expect, test } from 'vitest'
import { latestUser } from '../../src/device-agent/activity.ts'
import { bestEffort } from '../../src/device-agent/best-effort.ts'
import { architectureOf, guessRole, osTypeOf, prettyName } from '../../src/device-agent/description.ts'
import { diskHealthOf } from '../../src/device-agent/disks.ts'
import { cleanFirmwareText } from '../../src/device-agent/hardware.ts'
import { defaultRoute, defaultRoute6 } from '../../src/device-agent/network.ts'
import { parseApk, parseDpkgStatus, parseRpm } from '../../src/device-agent/software.ts'

describe('a part of the inventory', () => {
  test('is absent when reading it throws, rejects or hangs', async () => {
    expect(await bestEffort(() => JSON.parse('{'))).toBeUndefined()
    expect(await bestEffort(() => Promise.reject(new Error('no permission')))).toBeUndefined()
    expect(await bestEffort(() => new Promise(() => {}), 10)).toBeUndefined()
  })

  test('is its value otherwise', async () => {
    expect(await bestEffort(() => 7)).toBe(7)
  })
})

describe('the guessed role', () => {
  const linux = {
    osType: 'linux',
    osVersion: 'Debian',
    chassis: '',
    isVirtual: false,
    isHeadless: true,
  } as const
  test.each([
    ['a headless virtual machine is a server', { ...linux, isVirtual: true }, 'server'],
    ['a rack chassis is a server', { ...linux, chassis: 'Rack Mount Chassis', isHeadless: false }, 'server'],
    ['a notebook is a workstation', { ...linux, chassis: 'Notebook' }, 'workstation'],
    ['a desktop session makes a workstation', { ...linux, isHeadless: false }, 'workstation'],
    ['a headless machine without hints is unknown', linux, 'unknown'],
    ['a machine without a headless hint is unknown', { ...linux, isHeadless: undefined }, 'unknown'],
    ['a Mac is a workstation', { ...linux, osType: 'macos' }, 'workstation'],
    [
      'Windows 11 is a workstation',
      { ...linux, osType: 'windows', osVersion: 'Microsoft Windows 11 Pro' },
      'workstation',
    ],
    [
      'Windows Server is a server',
      { ...linux, osType: 'windows', osVersion: 'Microsoft Windows Server 2022' },
      'server',
    ],
  ] as const)('%s', (_, hints, role) => {
    expect(guessRole(hints)).toBe(role)
  })
})

test('the architecture has a name of the product', () => {
  const names = ['x86_64', 'aarch64', 'i686', 'arm64', 'AMD64', 'riscv64'].map(architectureOf)
  expect(names).toEqual(['x64', 'arm64', 'x86', 'arm64', 'x64', 'riscv64'])
})

test('an unsupported operating system is refused by name', () => {
  expect(() => osTypeOf('aix')).toThrow('The agent does not run on aix')
})

test.each([
  ['PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian', 'Debian GNU/Linux 12 (bookworm)'],
  ["ID=alpine\nPRETTY_NAME='Alpine Linux v3.22'\n", 'Alpine Linux v3.22'],
  ['PRETTY_NAME=Minimal\n', 'Minimal'],
  ['ID=none', undefined],
])('the release name is read from %j', (text, name) => {
  expect(prettyName(text)).toBe(name)
})

test('a placeholder of a vendor is no serial number', () => {
  const blanks = [
    '',
    '-',
    ' To Be Filled By O.E.M. ',
    'Default string',
    'Not Specified',
    'System Serial Number\u0000',
  ]
  expect(blanks.map(cleanFirmwareText)).toEqual(blanks.map(() => undefined))
  expect(cleanFirmwareText('PowerEdge R750\u0000')).toBe('PowerEdge R750')
})

describe('the default route', () => {
  const head = 'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n'

  test('is the one with the lowest metric that is up', () => {
    const table = `${head}wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\neth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\neth1\t00000000\t010200C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n`
    expect(defaultRoute(table)).toBe('eth0')
  })

  test('may go through a tunnel without a gateway', () => {
    const table = `${head}eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nwg0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n`
    expect(defaultRoute(table)).toBe('wg0')
  })

  test('is absent without a default row', () => {
    expect(defaultRoute(head)).toBeUndefined()
  })

  test('for IPv6 is not a reject route', () => {
    const zero = '0'.repeat(32)
    const row = (metric: string, flags: string, name: string) =>
      `${zero} 00 ${zero} 00 fd000000000000000000000000000001 ${metric} 00000002 00000000 ${flags}     ${name}\n`
    expect(defaultRoute6(row('00000400', '00000003', 'eth0') + row('ffffffff', '00200200', 'lo'))).toBe(
      'eth0',
    )
    expect(defaultRoute6(row('ffffffff', '00200200', 'lo'))).toBeUndefined()
  })
})

test('only installed packages are software', () => {
  const status = `Package: bash
Status: install ok installed
Maintainer: Matthias Klose <doko@debian.org>
Version: 5.2.15-2+b7
Description: GNU Bourne Again SHell
 Package: not a field

Package: left-over
Status: deinstall ok config-files
Version: 1.0

Package: half
Status: install reinstreq half-installed
Version: 2.0
`
  expect(parseDpkgStatus(status)).toEqual([
    { name: 'bash', version: '5.2.15-2+b7', publisher: 'Matthias Klose <doko@debian.org>' },
  ])
  expect(parseDpkgStatus(status, () => '2026-01-31')[0]!.installDate).toBe('2026-01-31')
})

test('packages of Alpine and rpm are listed like those of Debian', () => {
  const apk =
    'C:Q1x=\nP:musl\nV:1.2.5-r9\nm:Natanael Copa <ncopa@alpinelinux.org>\nF:lib\n\nP:zlib\nV:1.3.1-r2\n\n'
  expect(parseApk(apk)).toEqual([
    { name: 'musl', version: '1.2.5-r9', publisher: 'Natanael Copa <ncopa@alpinelinux.org>' },
    { name: 'zlib', version: '1.3.1-r2' },
  ])
  const rpm =
    'bash\t0:5.2.26-3.fc40\tFedora Project\t1767225600\nbind\t32:9.18-1\t(none)\t0\ngpg-pubkey\t0:a-b\t(none)\t1\n'
  expect(parseRpm(rpm)).toEqual([
    { name: 'bash', version: '5.2.26-3.fc40', publisher: 'Fedora Project', installDate: '2026-01-01' },
    { name: 'bind', version: '32:9.18-1' },
  ])
})

test('a file system has the health of its disk', () => {
  const disks = [
    { device: '/dev/sda', smartStatus: 'Ok' },
    { device: '/dev/nvme0n1', smartStatus: 'Predicted Failure' },
    { device: '/dev/sdb', smartStatus: 'unknown' },
    { device: '', smartStatus: 'Ok' },
  ]
  const health = (fs: string) => diskHealthOf(fs, disks)
  expect(['/dev/sda1', '/dev/nvme0n1p2', '/dev/sdb1', '/dev/sdaa1', 'tmpfs'].map(health)).toEqual([
    'ok',
    'predicted failure',
    undefined,
    undefined,
    undefined,
  ])
})

test('the last user is the one with the latest sign-in', () => {
  const sessions = [
    { user: 'ann', date: '2026-05-01', time: '09:00' },
    { user: 'bob', date: '2026-05-02', time: '08:00' },
    { user: '', date: '2026-05-03', time: '08:00' },
  ]
  expect(latestUser(sessions)).toBe('bob')
  expect(latestUser([])).toBeUndefined()
})
