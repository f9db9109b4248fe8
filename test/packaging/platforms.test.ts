import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { hostPlatform, root } from '../../packaging/lockfile.ts'
import { machineCodeOf } from '../../packaging/machine-code.ts'
import { nodeFor, nodeVersion, runtimes } from '../../packaging/platforms.ts'
import { checkMachineCode, trimPackages } from '../../packaging/stage.ts'
import { temporaryFolder } from '../databases.ts'

const prebuilds = join(root, 'node_modules/better-sqlite3/prebuilds')

describe('the platforms of one file', () => {
  it('have the Node that the project pins', async () => {
    const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect(nodeVersion).toBe(devDependencies.node)
    const folder = await temporaryFolder()
    // Also compares the installed one with its checksum.
    if (runtimes[hostPlatform]) expect(machineCodeOf(nodeFor(hostPlatform, folder))).toBe(hostPlatform)
  })

  it('are known by the header of a file', async () => {
    const files = globSync('*.node', { cwd: prebuilds })
    expect(files.length).toBeGreaterThan(5)
    for (const file of files)
      expect(machineCodeOf(join(prebuilds, file)), file).toBe(
        basename(file, '.node').replace('linuxmusl', 'linux'),
      )
    const text = join(await temporaryFolder(), 'text')
    for (const content of ['', 'MZ', 'MZ and much more than that '.repeat(9), '#!/bin/sh\n']) {
      writeFileSync(text, content)
      expect(machineCodeOf(text)).toBeUndefined()
    }
  })

  it('have no machine code of another one', async () => {
    const folder = await temporaryFolder()
    writeFileSync(join(folder, 'one.node'), readFileSync(join(prebuilds, 'win32-x64.node')))
    checkMachineCode(folder, 'win32-x64')
    expect(() => checkMachineCode(folder, 'linux-x64')).toThrow(
      /one\.node is machine code for win32-x64, not/,
    )
  })

  it('are refused where the database has no machine code for them', async () => {
    const folder = await temporaryFolder()
    const sqlite = join(folder, 'node_modules/better-sqlite3')
    mkdirSync(join(sqlite, 'prebuilds'), { recursive: true })
    writeFileSync(join(sqlite, 'package.json'), '{"version":"1.0.0"}')
    writeFileSync(join(sqlite, 'prebuilds/linux-x64.node'), '')
    trimPackages(folder, 'linux-x64')
    expect(() => trimPackages(folder, 'linux-arm64')).toThrow(
      'better-sqlite3 1.0.0 has no machine code for linux-arm64: svc cannot be made for it',
    )
  })
})
