import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { binary, Home } from './run.ts'
import { organization, StandIn } from './stand-in.ts'

const home = new Home()
const service = new StandIn({ 'GET /orgs/': { body: { data: [organization(10, 'acme', 'Acme')] } } })

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

describe('starting', () => {
  it('a client command loads nothing of the server', async () => {
    const spy = home.write(
      'spy.cjs',
      `process.on('exit', () => {
        const names = Object.keys(require.cache).map((file) => (/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(file) || [])[1])
        process.stderr.write(JSON.stringify([...new Set(names)].filter(Boolean)))
      })`,
    )
    const { stderr } = await home.run(['orgs', '--json'], { env: { NODE_OPTIONS: `--require ${spy}` } })
    const loaded = JSON.parse(stderr) as string[]
    expect(loaded).toContain('@oclif/core')
    for (const name of [
      'fastify',
      'better-sqlite3',
      'kysely',
      'pg',
      'undici',
      'chalk',
      'cli-table3',
      'yaml',
      '@napi-rs/keyring',
      '@inquirer/prompts',
      'proper-lockfile',
    ]) {
      expect(loaded).not.toContain(name)
    }
  })

  it('a client command imports no module of the server', async () => {
    const spy = home.write(
      'hooks.mjs',
      `import { registerHooks } from 'node:module'
       registerHooks({ load(url, context, next) { if (/node_modules\\/(fastify|better-sqlite3|kysely|pg|pino)\\/|dist\\/(daemon|src\\/storage)\\//.test(url)) process.stderr.write(url); return next(url, context) } })`,
    )
    const { stderr } = await home.run(['orgs', '--json'], { env: { NODE_OPTIONS: `--import ${spy}` } })
    expect(stderr).toBe('')
  })

  it('--version says the version and the platform', async () => {
    const { stdout } = await home.run(['--version'])
    expect(stdout).toBe(`svc/0.1.0 ${process.platform}-${process.arch} node-${process.version}\n`)
  })
})

const old = ['/usr/bin/node', '/usr/local/bin/node'].filter(existsSync).find((path) => {
  const major = Number(
    execFileSync(path, ['-p', 'process.versions.node.split(".")[0]'], { encoding: 'utf8' }),
  )
  return major < 22
})
if (!old) console.warn('skipped: no unsupported Node on this machine')

it.skipIf(!old)('an unsupported Node is told so in one line', () => {
  const { status, stdout, stderr } = spawnSync(old!, [binary, 'orgs'], { encoding: 'utf8' })
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
  expect(stderr).toMatch(/^svc needs Node \^22.*, this is \d+\.\d+\.\d+\n$/)
})
