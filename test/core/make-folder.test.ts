import { spawnSync } from 'node:child_process'
import { mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { makeFolder } from '../../src/core/make-folder.ts'
import { temporaryFolder } from '../databases.ts'
import { productSources } from '../laws/imports.ts'

it('makes what is missing of a path, and leaves what is there', async () => {
  const base = await temporaryFolder()
  makeFolder(join(base, 'a', 'b', 'c'))
  expect(['a', 'a/b', 'a/b/c'].map((path) => statSync(join(base, path)).mode & 0o777)).toEqual([
    0o700, 0o700, 0o700,
  ])
  mkdirSync(join(base, 'open'), { mode: 0o755 })
  makeFolder(join(base, 'open'))
  expect(statSync(join(base, 'open')).mode & 0o777).toBe(0o755)
})

it('says that a file is in the way', async () => {
  const base = await temporaryFolder()
  writeFileSync(join(base, 'file'), '')
  symlinkSync(join(base, 'nowhere'), join(base, 'link'))
  expect(() => makeFolder(join(base, 'file'))).toThrow('EEXIST')
  expect(() => makeFolder(join(base, 'file', 'below'))).toThrow('ENOTDIR')
  expect(() => makeFolder(join(base, 'link', 'below'))).toThrow('EEXIST')
})

it.runIf(process.platform === 'linux')('returns where the system refuses as if a folder were missing', () => {
  const module = JSON.stringify(new URL('../../src/core/make-folder.ts', import.meta.url).href)
  const script = `(await import(${module})).makeFolder('/proc/nothing/below')`
  // In a process of its own: what never returns could not be ended from here.
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    timeout: 20_000,
    killSignal: 'SIGKILL',
    encoding: 'utf8',
  })
  expect([signal, stderr]).toEqual([null, expect.stringContaining('ENOENT')])
})

it('is how the program makes every folder with those above it', () => {
  const others = productSources()
    .filter(
      ({ path, text }) => /\bmkdir\w*\([^;]*recursive: true/.test(text) && path !== 'src/core/make-folder.ts',
    )
    .map(({ path }) => path)
  expect(others).toEqual([])
})
