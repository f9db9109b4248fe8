import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  globSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { until } from '../daemon/process.ts'
import { isSoak } from '../depth.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const password = 'correct horse battery staple'

// It has a Node in it: to make it takes too long for each run.
describe.skipIf(!isSoak || process.platform !== 'linux')('svc as one file', { timeout: 120_000 }, () => {
  let folder: string
  let svc: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'svc-binary-test-'))
    svc = join(folder, 'svc')
    const script = join(root, 'packaging/build-binary.ts')
    await run(process.execPath, [script, '--out', svc], { cwd: root })
    return () => rmSync(folder, { recursive: true, force: true })
  }, 600_000)

  let count = 0
  /** A home of its own, in which nothing is unpacked yet. */
  function user() {
    const home = join(folder, `home-${count++}`)
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      SVC_CREDENTIAL_STORE: 'file',
      SVC_DATA_DIR: join(home, 'data'),
    }
    const call = (args: string[], more = {}) => run(svc, args, { env: { ...env, ...more } })
    const base = join(home, '.cache/svc/program')
    const program = () => join(base, readdirSync(base)[0]!)
    return { env, call, base, program }
  }

  it('needs nothing beside it, and is unpacked once, for its user alone', async () => {
    const { call, base, program } = user()
    const { stdout } = await call(['--version'])
    expect(stdout).toBe(`svc/0.1.0 linux-${process.arch} node-${process.version}\n`)
    expect(readdirSync(base)).toHaveLength(1)
    const unpacked = readdirSync(program(), { recursive: true, withFileTypes: true })
    for (const entry of unpacked) {
      const mode = statSync(join(entry.parentPath, entry.name)).mode & 0o077
      expect(mode, entry.name).toBe(0)
    }
    const before = statSync(program()).ctimeMs
    await call(['--version'], { NODE_OPTIONS: '--no-such-option' })
    expect(statSync(program()).ctimeMs).toBe(before)
  })

  it('serves, and is the client of that, with its threads and child processes', async () => {
    const { env, call } = user()
    const admin = { SVC_ADMIN_EMAIL: 'ada@example.com', SVC_ADMIN_PASSWORD: password, PORT: '0' }
    const service = spawn(svc, ['serve'], { env: { ...env, ...admin }, stdio: ['ignore', 'pipe', 'ignore'] })
    onTestFinished(() => void service.kill('SIGKILL'))
    let said = ''
    service.stdout.on('data', (piece) => {
      said += piece
    })
    await until(() => /listening on http\S+\n/.test(said), 60_000)
    const SVC_URL = /http\S+/.exec(said)![0]
    const login = spawn(svc, ['login', '--email', 'ada@example.com', '--password-stdin'], {
      env: { ...env, SVC_URL },
      stdio: ['pipe', 'ignore', 'pipe'],
    })
    login.stdin.end(password)
    const failure = await text(login.stderr)
    expect(login.exitCode ?? (await once(login, 'exit'))[0], failure).toBe(0)
    await call(['partners', 'create', '--name', 'Acme', '--slug', 'acme'], { SVC_URL })
    const { stdout } = await call(['partners', 'list', '--jq', '.data[].slug'], { SVC_URL })
    expect(stdout).toContain('acme')
    expect((await call(['audit', 'verify'], { SVC_URL })).stdout).toMatch(/^Sound: /)
    const args = ['db', 'backup', '--out', join(env.HOME, 'one.backup'), '--jq', '.rows']
    expect(Number((await call(args)).stdout)).toBeGreaterThan(0)
    service.kill('SIGTERM')
    expect((await once(service, 'exit'))[0]).toBe(0)
  })

  it('starts a child process that has no environment', async () => {
    const { call, program } = user()
    await call(['--version'])
    const child = join(program(), 'dist/src/cli/keychain-child.js')
    const { stdout } = await promisify(execFile)('sh', ['-c', 'exec env -i "$0" "$1" </dev/null', svc, child])
    expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: expect.stringContaining('JSON') })
  })

  it('unpacks itself anew where machine code was changed, or a file is missing or cut', async () => {
    const { call, program } = user()
    await call(['--version'])
    const native = join(program(), globSync('**/*.node', { cwd: program() })[0]!)
    const page = join(program(), 'dist/src/cli/main.js')
    const [code, script] = [readFileSync(native), readFileSync(page)]
    const damaged = Buffer.from(code)
    damaged[code.length >> 1]! ^= 1
    for (const damage of [
      () => writeFileSync(native, damaged),
      () => writeFileSync(page, script.subarray(1)),
      () => rmSync(page),
    ]) {
      damage()
      await call(['--version'])
      expect([readFileSync(native).equals(code), readFileSync(page).equals(script)]).toEqual([true, true])
    }
  })

  it('runs nothing from a folder that others can write to', async () => {
    const { call, base, program } = user()
    await call(['--version'])
    // What is there is replaced, where the folder above it is of this user alone.
    chmodSync(program(), 0o777)
    await call(['--version'])
    expect(statSync(program()).mode & 0o077).toBe(0)
    chmodSync(program(), 0o777)
    chmodSync(base, 0o777)
    await expect(call(['--version'])).rejects.toThrow('others may write there')
    const child = join(program(), 'dist/src/cli/keychain-child.js')
    await expect(call([child])).rejects.toThrow('is not what this program has unpacked')
  })

  it('is unpacked by several at once, and keeps few other versions', async () => {
    const { call, base } = user()
    await Promise.all(Array.from({ length: 4 }, () => call(['--version'])))
    expect(readdirSync(base)).toHaveLength(1)
    for (const name of ['a', 'b', 'c', 'd', 'e']) await run('mkdir', [join(base, name)])
    rmSync(join(base, readdirSync(base).find((name) => name.length > 1)!), { recursive: true })
    await call(['--version'])
    expect(readdirSync(base)).toHaveLength(4)
  })

  it('says what to do where it cannot be unpacked', async () => {
    const { call, env } = user()
    const XDG_CACHE_HOME = join(env.HOME, 'file')
    await run('mkdir', [env.HOME])
    writeFileSync(XDG_CACHE_HOME, '')
    await expect(call(['--version'], { XDG_CACHE_HOME })).rejects.toThrow(
      /Set XDG_CACHE_HOME to another folder/,
    )
    expect(existsSync(join(env.HOME, '.cache'))).toBe(false)
  })
})
