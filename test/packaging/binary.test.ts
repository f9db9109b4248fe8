import { execFile, spawn, spawnSync } from 'node:child_process'
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
import { machineCodeOf } from '../../packaging/machine-code.ts'
import { until } from '../daemon/process.ts'
import { isSoak } from '../depth.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const password = 'correct horse battery staple'

// It has a Node in it: to make it takes too long for each run.
describe.skipIf(!isSoak || process.platform !== 'linux')('svc as one file', () => {
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
    expect(stdout).toBe(`svc/${version} linux-${process.arch} node-${process.version}\n`)
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

describe.skipIf(!isSoak || process.platform !== 'linux')(
  'svc as one file for another platform',
  { timeout: 600_000 },
  () => {
    let folder: string
    const build = async (platform: string, file: string) => {
      const out = join(folder, file)
      const script = join(root, 'packaging/build-binary.ts')
      const args = ['--platform', platform, '--out', out, '--sbom', `${out}.cdx.json`]
      await run(process.execPath, [script, ...args], { cwd: root })
      return out
    }
    /** The files that it unpacks. */
    const packedIn = (file: string): string[] => {
      const program = readFileSync(file)
      const from = program.indexOf('{"digest":"')
      const index = program.toString('utf8', from, program.indexOf('}', from) + 1)
      return JSON.parse(index).files.map(([path]: [string]) => path)
    }
    const partsOf = (sbom: string): string[] =>
      JSON.parse(readFileSync(sbom, 'utf8')).components.map(({ purl }: { purl: string }) => purl)

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'svc-binary-test-'))
      return () => rmSync(folder, { recursive: true, force: true })
    })

    it('is a program of Windows, with the machine code of Windows alone', async () => {
      const file = await build('win32-x64', 'svc.exe')
      expect(machineCodeOf(file)).toBe('win32-x64')
      const native = packedIn(file).filter((path) => path.endsWith('.node'))
      expect(native.map((path) => path.split('/').at(-1)!).sort()).toEqual([
        'argon2.win32-x64-msvc.node',
        'keyring.win32-x64-msvc.node',
        'win32-x64.node',
      ])
      expect(partsOf(`${file}.cdx.json`).join()).toContain('argon2-win32-x64-msvc@')
      // The mark of Node that a program is inside.
      expect(readFileSync(file).includes('NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2:1')).toBe(true)
    })

    const emulator = ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu']
    const isEmulated =
      !spawnSync(emulator[0]!, ['--version']).error && existsSync('/usr/aarch64-linux-gnu/lib/libatomic.so.1')
    it('is a program of Linux on arm64, which starts and opens its database there', async () => {
      const file = await build('linux-arm64', 'svc-arm64')
      expect(machineCodeOf(file)).toBe('linux-arm64')
      const native = packedIn(file).filter((path) => path.endsWith('.node'))
      expect(native.map((path) => path.split('/').at(-1)!).sort()).toEqual([
        'argon2.linux-arm64-gnu.node',
        'keyring.linux-arm64-gnu.node',
        'linux-arm64.node',
      ])
      if (!isEmulated) return console.warn('skipped: arm64 needs qemu-user-static and libatomic1-arm64-cross')
      const env = { PATH: process.env.PATH, HOME: folder, SVC_DATA_DIR: join(folder, 'data') }
      const call = (...args: string[]) => run(emulator[0]!, [...emulator.slice(1), file, ...args], { env })
      expect((await call('--version')).stdout).toBe(`svc/${version} linux-arm64 node-${process.version}\n`)
      expect((await call('db', 'migrate')).stdout).toContain('0001_foundation')
    })

    it('is not made for a platform that the registry has no Node for', async () => {
      await expect(build('sunos-x64', 'none')).rejects.toThrow(
        '--platform is linux-x64, linux-arm64, win32-x64 or that of this machine, not sunos-x64',
      )
    })
  },
)
