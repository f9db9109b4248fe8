import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import os from 'node:os'
import { describe, expect, test } from 'vitest'
import { Enrollment, Inventory } from '../../src/agents/contract.ts'
import { describeMachine } from '../../src/device-agent/description.ts'
import { readInventory } from '../../src/device-agent/inventory.ts'
import { inventorySignature } from '../../src/device-agent/inventory-signature.ts'
import { dpkgStatusFile } from '../../src/device-agent/software.ts'

// dpkg-query's own placeholders, not JavaScript's.
const dpkgFormat = ['db:Status-Status', 'Package', 'Version'].map((field) => `\${${field}}`).join(' ')
const output = (command: string, ...args: string[]): string =>
  execFileSync(command, args, { encoding: 'utf8' }).trim()

describe('the inventory of this very machine', async () => {
  const machine = await describeMachine()
  const inventory = await readInventory()
  const { hardware = {}, network = [], disks = [], software = [] } = inventory

  test('says who the machine is', () => {
    expect(machine.hostname).toBe(os.hostname())
    expect(machine.osType).toBe(
      { linux: 'linux', darwin: 'macos', win32: 'windows' }[process.platform as 'linux'],
    )
    expect(machine.architecture).toBe(os.arch() === 'ia32' ? 'x86' : os.arch())
    expect(['server', 'workstation', 'unknown']).toContain(machine.deviceRole)
  })

  test.runIf(existsSync('/etc/os-release'))('names the release as the release names itself', () => {
    expect(machine.osVersion).toBe(output('sh', '-c', '. /etc/os-release && echo "$PRETTY_NAME"'))
    expect(machine.osBuild).toBe(os.release())
  })

  test('counts the processors and the memory that are there', () => {
    expect(hardware.cpuThreads).toBe(os.cpus().length)
    expect(hardware.cpuCores).toBeGreaterThan(0)
    expect(hardware.cpuCores).toBeLessThanOrEqual(hardware.cpuThreads!)
    expect(Math.abs(hardware.ramTotalMb! / (os.totalmem() / 2 ** 20) - 1)).toBeLessThan(0.05)
  })

  test('has every interface with every address', () => {
    const there = Object.entries(os.networkInterfaces()).flatMap(([name, addresses = []]) =>
      addresses.map(({ address, family }) => [name, address, family.toLowerCase()]),
    )
    const told = network.map(({ interfaceName, ipAddress, ipType }) => [interfaceName, ipAddress, ipType])
    expect(told.toSorted()).toEqual(there.toSorted())
  })

  test('calls one interface primary at most, and lists it first', () => {
    const primary = new Set(
      network.filter(({ isPrimary }) => isPrimary).map(({ interfaceName }) => interfaceName),
    )
    expect(primary.size).toBeLessThanOrEqual(1)
    if (primary.size === 1) expect(network[0]?.isPrimary).toBe(true)
  })

  test('has the file system of the root with plausible sizes', () => {
    const root = disks.find(({ mountPoint }) => mountPoint === '/')
    expect(root).toBeDefined()
    expect(root!.totalGb).toBeGreaterThan(0)
    expect(root!.usedGb! + root!.freeGb!).toBeLessThanOrEqual(root!.totalGb! + 0.02)
    expect(root!.usedPercent).toBeGreaterThan(0)
  })

  test.runIf(existsSync(dpkgStatusFile))('lists the packages dpkg lists', () => {
    const lines = output('dpkg-query', '-W', '-f', `${dpkgFormat}\n`).split('\n')
    const installed = lines.filter((line) => line.startsWith('installed ')).map((line) => line.slice(10))
    expect(software.map(({ name, version }) => `${name} ${version}`).toSorted()).toEqual(installed.toSorted())
  })

  test('reaches the service unchanged: nothing in it is dropped', () => {
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
