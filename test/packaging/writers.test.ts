import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { makeDeb } from '../../packaging/deb.ts'
import type { Made } from '../../packaging/metadata.ts'
import { makeRpm } from '../../packaging/rpm.ts'
import { settle } from '../../packaging/stage.ts'
import { temporaryFolder } from '../databases.ts'

const made: Made = {
  version: '1.2.3',
  maintainer: 'Ada <ada@example.com>',
  seconds: 1_700_000_000,
  isQuick: false,
}
const writers = { 'dpkg-deb': makeDeb, rpmbuild: makeRpm }
const files = [
  'usr/bin/svc-agent',
  'usr/share/man/man1/svc-agent.1.gz',
  'usr/share/doc/svc-agent/license.txt',
]

/** The tree of the agent's package, made in this order, with this umask and time, in a folder of its own. */
async function written(
  write: typeof makeDeb,
  order: readonly string[],
  umask: number,
  time: number,
  zone: string,
) {
  const folder = await temporaryFolder()
  const before = process.umask(umask)
  vi.stubEnv('TZ', zone)
  onTestFinished(() => {
    process.umask(before)
    vi.unstubAllEnvs()
  })
  const root = join(folder, `a root of ${zone.length} letters`)
  for (const file of order) {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    writeFileSync(join(root, file), `contents of ${file}`)
    chmodSync(join(root, file), umask === 0o077 ? 0o600 : 0o666)
    utimesSync(join(root, file), time, time)
  }
  settle(root, ['usr/bin/svc-agent'], made.seconds)
  const file = join(folder, 'made')
  write('svc-agent', root, made, file)
  process.umask(before)
  return readFileSync(file)
}

describe.each(Object.entries(writers))('a package that %s makes', (program, write) => {
  it.skipIf(spawnSync(program, ['--version']).error)(
    'does not depend on who makes it, where, and when',
    async () => {
      const one = await written(write, files, 0o022, 1_000_000_000, 'UTC')
      const other = await written(write, files.toReversed(), 0o077, 1_900_000_000, 'Asia/Tokyo')
      expect(one.length).toBeGreaterThan(500)
      expect(one.equals(other)).toBe(true)
    },
  )
})
