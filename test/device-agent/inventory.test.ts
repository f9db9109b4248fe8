import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import os from 'node:os'
import { describe, expect, test } from 'vitest'
import { Enrollment, Inventory } from '../../src/agents/contract.ts'
import { describeMachine } from '../../src/device-agent/description.ts'
import { readInventory } from '../../src/device-agent/inventory.ts'
import { inventorySignature } from '../../src/device-agent/inventory-signature.ts'
import { dpkgStatusFile } from '../../src/device-agent/software.ts'

// Placeholders of dpkg-query, not of JavaScript.
const dpkgFormat = ['db:Status-Status', 'Package', 'Version'].map((field) => `\${${field}}`).join(' ')
const output = (command: string, ...args: string[]): string =>
  execFileSync(command, args, { encoding: 'utf8' }).trim()

describe('the inventory of this machine', async () => {
  const machine = await describeMachine()
  const inventory = await readInventory()
  const { hardware = {}, network = [], disks = [], software = [] } = inventory

  test('names the machine', () => {
    expect(machine.hostname).toBe(os.hostname())
    expect(machine.osType).toBe(
      { linux: 'linux', darwin: 'macos', win32: 'windows' }[process.platform as 'linux'],
    )
    expect(machine.architecture).toBe(os.arch() === 'ia32' ? 'x86' : os.arch())
    expect(['server', 'workstation', 'unknown']).toContain(machine.deviceRole)
  })

  test.runIf(existsSync('/etc/os-release'))('names the operating system as /etc/os-release does', () => {
    expect(machine.osVersion).toBe(output('sh', '-c', '. /etc/os-release && echo "$PRETTY_NAME"'))
    expect(machine.osBuild).toBe(os.release())
  })

  test('counts its processors and memory', () => {
    expect(hardware.cpuThreads).toBe(os.cpus().length)
    expect(hardware.cpuCores).toBeGreaterThan(0)
    expect(hardware.cpuCores).toBeLessThanOrEqual(hardware.cpuThreads!)
    expect(Math.abs(hardware.ramTotalMb! / (os.totalmem() / 2 ** 20) - 1)).toBeLessThan(0.05)
  })

  test('has every interface with every address', () => {
    const expected = Object.entries(os.networkInterfaces()).flatMap(([name, addresses = []]) =>
      addresses.map(({ address, family }) => [name, address, family.toLowerCase()]),
    )
    const reported = network.map(({ interfaceName, ipAddress, ipType }) => [interfaceName, ipAddress, ipType])
    expect(reported.toSorted()).toEqual(expected.toSorted())
  })

  test('has at most one primary interface, and lists it first', () => {
    const primary = new Set(
      network.filter(({ isPrimary }) => isPrimary).map(({ interfaceName }) => interfaceName),
    )
    expect(primary.size).toBeLessThanOrEqual(1)
    if (primary.size === 1) expect(network[0]?.isPrimary).toBe(true)
  })

  test('has the root file system with plausible sizes', () => {
    const root = disks.find(({ mountPoint }) => mountPoint === '/')
    expect(root).toBeDefined()
    expect(root!.totalGb).toBeGreaterThan(0)
    expect(root!.usedGb! + root!.freeGb!).toBeLessThanOrEqual(root!.totalGb! + 0.02)
    expect(root!.usedPercent).toBeGreaterThan(0)
  })

  test.runIf(existsSync(dpkgStatusFile))('lists the packages that dpkg lists', () => {
    const lines = output('dpkg-query', '-W', '-f', `${dpkgFormat}\n`).split('\n')
    const installed = lines.filter((line) => line.startsWith('installed ')).map((line) => line.slice(10))
    expect(software.map(({ name, version }) => `${name} ${version}`).toSorted()).toEqual(installed.toSorted())
  })

  test('matches the schema of the service: no field is dropped', () => {
    expect(Inventory.parse(inventory)).toEqual(inventory)
    const { osBuild: _, isHeadless: __, ...said } = machine
    const enrollment = {
      ...said,
      enrollmentKey: 'k',
      agentVersion: '1.0.0',
      hardwareInfo: hardware,
      networkInfo: network,
    }
    expect(Enrollment.parse(enrollment)).toEqual({ virtualizationPlatform: null, ...enrollment })
  })

  test('keeps its signature while nothing changes', () => {
    expect(inventorySignature()).toBe(inventorySignature())
  })
})
