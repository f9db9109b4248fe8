import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest'
import AgentInstall from '../../commands/agent/install.ts'
import AgentRun from '../../commands/agent/run.ts'
import AgentUninstall from '../../commands/agent/uninstall.ts'
import { agentUnitText } from '../../src/device-agent/install/unit.ts'
import { options } from '../../src/device-agent/options.ts'
import { standIn } from './stand-in.ts'
import { builds } from './update/machine.ts'

const build = builds()
const svc = fileURLToPath(new URL('../../bin/svc.js', import.meta.url))
const key = 'f00d'.repeat(16)
const { username } = userInfo()
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0

let root: string
let places: string[]
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'svc-install-'))
  places = ['--state-dir', join(root, 'state'), '--unit-dir', join(root, 'units'), '--user', username]
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const env = () => ({
  PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
  HOME: root,
  SVC_CONFIG_DIR: join(root, 'config'),
  NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
})

function call(file: string, args: string[], input = '') {
  const { status, stdout, stderr } = spawnSync(file, args, { env: env(), input, encoding: 'utf8' })
  return { exit: status, out: stdout, err: stderr }
}
const svcAgent = (...args: string[]) => call(process.execPath, [svc, 'agent', ...args])
/** Later flags override earlier ones. */
function install(...args: string[]) {
  const said = [...places, '--binary', build('1.0.0')]
  const first = said.filter((_, n) => !args.includes(said[n - (n % 2)]!))
  return svcAgent('install', ...first, ...args)
}
const everything = () => readdirSync(root, { recursive: true }).map(String).sort()

describe('svc agent install', () => {
  test('installs binary, key and unit, each writable by its user only', () => {
    writeFileSync(join(root, 'key'), `${key}\n`)
    const { exit, out, err } = install(
      '--yes',
      '--url',
      'https://svc.example.com',
      '--enrollment-key',
      `@${root}/key`,
    )
    expect({ exit, out }).toEqual({ exit: 0, out: '' })
    expect(err).toContain('systemctl enable --now svc-agent.service')
    expect(err).not.toContain(key)
    const mode = (path: string): number => statSync(join(root, path)).mode & 0o777
    expect([
      mode('state'),
      mode('state/bin'),
      mode('state/bin/svc-agent'),
      mode('state/enrollment.key'),
    ]).toEqual([0o700, 0o700, 0o755, 0o600])
    expect(readFileSync(join(root, 'state/bin/svc-agent'))).toEqual(readFileSync(build('1.0.0')))
    expect(readFileSync(join(root, 'state/enrollment.key'), 'utf8')).toBe(`${key}\n`)
    const unit = readFileSync(join(root, 'units/svc-agent.service'), 'utf8')
    expect(unit).toContain(
      `ExecStart=${root}/state/bin/svc-agent run --state-dir ${root}/state --url https://svc.example.com\n`,
    )
    expect(unit).not.toContain(key)
    // A second run changes nothing.
    const before = everything()
    expect(
      install('--yes', '--url', 'https://svc.example.com', '--enrollment-key', `@${root}/key`).exit,
    ).toBe(0)
    expect(everything()).toEqual(before)
  })

  test('leaves a key that the agent uses and removes', async () => {
    await using service = await standIn()
    writeFileSync(join(root, 'key'), key)
    expect(install('--yes', '--url', service.url, '--enrollment-key', `@${root}/key`).exit).toBe(0)
    const unit = readFileSync(join(root, 'units/svc-agent.service'), 'utf8')
    const [file, ...args] = /^ExecStart=(.*)$/m.exec(unit)![1]!.split(' ')
    const agent = spawn(file!, [...args, '--json'], { env: env(), stdio: ['ignore', 'pipe', 'inherit'] })
    while (service.count('/heartbeat') === 0) await once(agent.stdout, 'data')
    agent.kill('SIGTERM')
    expect((await once(agent, 'exit'))[0]).toBe(0)
    expect(service.received[0]!.body.enrollmentKey).toBe(key)
    expect(existsSync(join(root, 'state/enrollment.key'))).toBe(false)
    // It is enrolled: neither key nor URL is required again.
    expect(install('--yes').exit).toBe(0)
    expect(readFileSync(join(root, 'units/svc-agent.service'), 'utf8')).not.toContain('--url')
  })

  test.each([
    ['without confirmation', ['--enrollment-key', '@KEY'], 2, 'Missing --yes'],
    ['without a key', ['--yes'], 2, 'Missing --enrollment-key'],
    ['with a key on the command line', ['--yes', '--enrollment-key', key], 2, '--enrollment-key'],
    ['for a user with an invalid name', ['--yes', '--user', 'a b'], 2, '--user'],
    ['into a path that no unit can contain', ['--yes', '--state-dir', '/tmp/a b'], 2, '--state-dir'],
    ['into the root directory', ['--yes', '--state-dir', '/'], 2, '--state-dir'],
    ['of a missing binary', ['--yes', '--binary', 'KEY.missing'], 2, '--binary'],
    ['of a binary that cannot be run', ['--yes', '--binary', 'KEY', '--enrollment-key', '@KEY'], 1, 'failed'],
  ])('does not install %s', (_, args, exit, err) => {
    writeFileSync(join(root, 'key'), key)
    const result = install(...args.map((arg) => arg.replace('KEY', join(root, 'key'))))
    expect(result.exit).toBe(exit)
    expect(result.err).toContain(err)
    expect(existsSync(join(root, 'units'))).toBe(false)
    expect(existsSync(join(root, 'state', 'enrollment.key'))).toBe(false)
  })

  test('only prints its plan or the unit with --dry-run or --print', () => {
    const before = everything()
    const dry = install('--dry-run')
    expect(dry.exit).toBe(0)
    expect(dry.err).toContain(`Would write ${root}/units/svc-agent.service`)
    const print = svcAgent('install', '--print', '--url', 'https://svc.example.com')
    expect(print.out).toBe(
      agentUnitText({ stateDir: '/var/lib/svc-agent', user: 'svc-agent', url: 'https://svc.example.com' }),
    )
    const json = svcAgent('install', ...places, '--binary', build('1.0.0'), '--dry-run', '--json')
    expect(JSON.parse(json.out)).toMatchObject({
      done: false,
      stateDir: join(root, 'state'),
      unitFile: join(root, 'units', 'svc-agent.service'),
      steps: expect.arrayContaining([`write ${root}/units/svc-agent.service`]),
    })
    expect(everything()).toEqual(before)
  })

  test('is the same in the single-file agent, with the same flags', () => {
    writeFileSync(join(root, 'key'), key)
    const args = ['install', ...places, '--yes', '--enrollment-key', `@${root}/key`]
    expect(call(build('1.0.0'), args)).toEqual({ exit: 0, out: '', err: expect.stringContaining('Done') })
    expect(readFileSync(join(root, 'state/bin/svc-agent'))).toEqual(readFileSync(build('1.0.0')))
    const names = (flags: object): string[] => Object.keys(flags).sort()
    expect(names(options.run)).toEqual(names(AgentRun.flags))
    expect(names(options.install)).toEqual(names(AgentInstall.flags))
    expect(names(options.uninstall)).toEqual(names(AgentUninstall.flags))
  })
})

describe('svc agent uninstall', () => {
  test('removes the unit, and the rest only when requested', () => {
    writeFileSync(join(root, 'key'), key)
    install('--yes', '--enrollment-key', `@${root}/key`)
    expect(svcAgent('uninstall', ...places).exit).toBe(2)
    expect(svcAgent('uninstall', ...places, '--dry-run').err).toContain('Would remove')
    expect(existsSync(join(root, 'units/svc-agent.service'))).toBe(true)
    expect(svcAgent('uninstall', ...places, '--yes').exit).toBe(0)
    expect(existsSync(join(root, 'units/svc-agent.service'))).toBe(false)
    expect(existsSync(join(root, 'state/bin/svc-agent'))).toBe(true)
    expect(svcAgent('uninstall', ...places, '--yes').err).toContain('Nothing to remove')
  })

  test('removes no directory that is not the state of an agent', () => {
    const args = ['--unit-dir', join(root, 'units'), '--user', username, '--purge', '--yes']
    const { exit, err } = svcAgent('uninstall', '--state-dir', root, ...args)
    expect(exit).toBe(1)
    expect(err).toContain('is not the state directory of an agent')
    expect(existsSync(root)).toBe(true)
  })
})

describe.skipIf(!hasSystemd)('the systemd unit', () => {
  const awkward = 'https://svc.example.com/a%20b/$HOME/"x"'

  test('is parsed by systemd as written, whatever the URL', () => {
    const stateDir = join(root, 'state')
    writeFileSync(join(root, 'key'), key)
    install('--yes', '--enrollment-key', `@${root}/key`)
    const unit = join(root, 'units/svc-agent.service')
    writeFileSync(unit, agentUnitText({ stateDir, user: username, url: awkward }))
    const { status, stderr } = spawnSync(
      'systemd-analyze',
      ['verify', '--man=no', '--recursive-errors=no', unit],
      {
        encoding: 'utf8',
      },
    )
    expect({ status, stderr: stderr.split('\n').filter((line) => line.includes('svc-agent')) }).toEqual({
      status: 0,
      stderr: [],
    })
    const words = /^ExecStart=(.*)$/m.exec(readFileSync(unit, 'utf8'))![1]
    expect(words).toContain('a%%20b/$$HOME/\\"x\\""')
  })

  test('has a low exposure score in systemd-analyze', () => {
    const unit = join(root, 'svc-agent.service')
    writeFileSync(unit, agentUnitText({ stateDir: '/var/lib/svc-agent', user: 'svc-agent', url: undefined }))
    const out = execFileSync('systemd-analyze', ['security', '--offline=true', unit], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    expect(Number(/Overall exposure level for \S+: ([\d.]+)/.exec(out)![1])).toBeLessThan(2.5)
  })
})
