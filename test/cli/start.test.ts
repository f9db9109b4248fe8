import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FakeService, organization } from './fake-service.ts'
import { binary, Home } from './run.ts'

const root = dirname(dirname(binary))
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
const home = new Home()
const service = new FakeService({ 'GET /orgs/': { body: { data: [organization(10, 'acme', 'Acme')] } } })

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

/** The sources in a loaded file: the file itself, or all that the build has bundled into it. */
function contentsOf(url: string): string[] {
  const [, made] = /\/(dist\/.*)$/.exec(url) ?? []
  const inputs = made !== undefined && !url.includes('/node_modules/') ? contents[made]?.inputs : undefined
  return inputs ? Object.keys(inputs) : [url]
}

const contents = JSON.parse(readFileSync(join(root, 'dist', '.contents.json'), 'utf8')) as Record<
  string,
  { inputs: object }
>

describe('svc', () => {
  it('loads nothing of the server for a client command, and only the packages it needs', async () => {
    const spy = home.write(
      'hooks.mjs',
      `import { registerHooks } from 'node:module'
       registerHooks({ load(url, context, next) { process.stderr.write(url + '\\n'); return next(url, context) } })`,
    )
    const { stderr } = await home.run(['orgs', '--json'], { env: { NODE_OPTIONS: `--import ${spy}` } })
    const loaded = stderr.split('\n').flatMap(contentsOf)
    const packages = new Set(loaded.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]))
    expect(packages).toContain('@oclif/core')
    for (const name of [
      'fastify',
      'better-sqlite3',
      'kysely',
      'pg',
      'pino',
      'undici',
      'chalk',
      'cli-table3',
      'yaml',
      '@napi-rs/keyring',
      '@inquirer/prompts',
      'proper-lockfile',
    ]) {
      expect(packages).not.toContain(name)
    }
    expect(loaded).toContain('src/cli/main.ts')
    expect(loaded.filter((path) => /^(daemon|src\/storage)\//.test(path))).toEqual([])
  })

  it('--version prints version and platform', async () => {
    const { stdout } = await home.run(['--version'])
    expect(stdout).toBe(`svc/${version} ${process.platform}-${process.arch} node-${process.version}\n`)
  })
})

const old = ['/usr/bin/node', '/usr/local/bin/node'].filter(existsSync).find((path) => {
  const major = Number(
    execFileSync(path, ['-p', 'process.versions.node.split(".")[0]'], { encoding: 'utf8' }),
  )
  return major < 22
})
if (!old) console.warn('skipped: no unsupported Node on this machine')

it.skipIf(!old)('an unsupported Node version is reported in one line', () => {
  const { status, stdout, stderr } = spawnSync(old!, [binary, 'orgs'], { encoding: 'utf8' })
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
  expect(stderr).toMatch(/^svc needs Node \^22.*, this is \d+\.\d+\.\d+\n$/)
})
