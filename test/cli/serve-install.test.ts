import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { readSecretsFile, secretsFile } from '../../daemon/secrets/file.ts'
import { assertReadable, credentialsFrom } from '../../src/cli/service/install.ts'
import { secretNames as credentials } from '../../src/core/secret-names.ts'
import { Home, noTerminal } from './run.ts'

const { username } = userInfo()

let root: string
let home: Home
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'svc-serve-install-'))
  home = new Home()
})
afterEach(() => {
  home.remove()
  rmSync(root, { recursive: true, force: true })
})

const etc = (...path: string[]) => join(root, 'etc', 'svc', ...path)
const unit = () => join(root, 'units', 'svc.service')
const places = () => ['--etc-dir', etc(), '--unit-dir', join(root, 'units')]
const install = (...args: string[]) =>
  home.run(['serve', 'install', ...places(), '--user', username, ...args])
const uninstall = (...args: string[]) => home.run(['serve', 'uninstall', ...places(), ...args])
const mode = (path: string): number => statSync(path).mode & 0o777
const everything = () =>
  readdirSync(root, { recursive: true, withFileTypes: true })
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort()
    .map((path) => [path, statSync(path).isFile() ? readFileSync(path, 'utf8') : ''])

describe('svc serve install', () => {
  it('shows its steps before it does any of them', async () => {
    const { code, stdout, stderr } = await install('--dry-run')
    expect([code, stdout]).toEqual([0, ''])
    expect(stderr).toContain(`Would write ${etc('svc.env')}\n`)
    expect(stderr).toContain(`Would write ${unit()}\n`)
    expect(everything()).toEqual([])
    const asked = await install('--no-input')
    expect([asked.code, asked.stderr]).toEqual([2, expect.stringContaining('Missing --yes')])
    expect(everything()).toEqual([])
  })

  it.skipIf(noTerminal)('asks at a terminal, after it has shown them', async () => {
    const terminal = ['serve', 'install', ...places(), '--user', username]
    const refused = await home.terminal(terminal, { answers: [['Continue?', 'n\r']] })
    expect(refused.stdout).toContain('Nothing was changed')
    expect(refused.stdout.indexOf('Would generate')).toBeLessThan(refused.stdout.indexOf('Continue?'))
    expect(everything()).toEqual([])
  })

  it('makes settings, secrets and the unit, which others cannot read', async () => {
    const { code, stderr } = await install('--yes', '--public-url', 'https://svc.test', '--port', '8080')
    expect(code, stderr).toBe(0)
    expect(stderr).toContain('systemctl enable --now svc.service')
    expect([mode(etc('svc.env')), mode(etc('credentials')), mode(unit())]).toEqual([0o640, 0o700, 0o644])
    const settings = readFileSync(etc('svc.env'), 'utf8')
    expect(settings).toMatch(/^PUBLIC_URL=https:\/\/svc\.test$/m)
    expect(settings).toMatch(/^PORT=8080$/m)
    const secrets = credentials.map((name) => readFileSync(etc('credentials', name), 'utf8'))
    expect(new Set(secrets).size).toBe(credentials.length)
    for (const name of credentials) expect(mode(etc('credentials', name))).toBe(0o600)
    const text = readFileSync(unit(), 'utf8')
    expect(text).toMatch(/^ExecStart=\S+ \S+svc\.js serve$/m)
    expect(text).toContain(`EnvironmentFile=${etc('svc.env')}\n`)
    for (const secret of secrets) expect(`${stderr}${text}`).not.toContain(secret.trim())
  })

  it('takes the secrets that the service has generated, which new ones would shadow', () => {
    const generated = () => credentialsFrom(readSecretsFile(secretsFile(root)))
    expect(generated()).toEqual({})
    const stored = {
      jwt: 'j',
      encryption: 'e',
      enrollmentPepper: 'p',
      recoveryPepper: 'r',
      auditSigning: 'a',
    }
    writeFileSync(join(root, 'secrets.json'), JSON.stringify({ ...stored, jwtPrevious: 'former' }))
    expect(generated()).toEqual({
      JWT_SECRET: 'j',
      APP_ENCRYPTION_KEY: 'e',
      ENROLLMENT_KEY_PEPPER: 'p',
      MFA_RECOVERY_CODE_PEPPER: 'r',
      AUDIT_SIGNING_KEY: 'a',
    })
  })

  it('replaces a unit that somebody wrote only beside a copy of it, and settings of before not at all', async () => {
    await install('--yes')
    writeFileSync(unit(), '[Service]\n')
    expect((await install('--yes')).stderr).toContain(`replace ${unit()}, and keep the former one`)
    expect(readFileSync(`${unit()}.before`, 'utf8')).toBe('[Service]\n')
    renameSync(etc('svc.env'), etc('settings'))
    const { code, stderr } = await install('--yes')
    expect([code, stderr]).toEqual([1, expect.stringContaining(`mv ${etc('settings')} ${etc('svc.env')}`)])
  })

  it('changes nothing the second time, and repairs what is gone', async () => {
    await install('--yes')
    writeFileSync(etc('svc.env'), 'PORT=1234\n')
    const before = everything()
    expect((await install('--yes')).code).toBe(0)
    expect(everything()).toEqual(before)
    const other = await install('--yes', '--public-url', 'https://other.test')
    expect([other.code, other.stderr]).toEqual([2, expect.stringContaining('change PUBLIC_URL in it')])
    expect(everything()).toEqual(before)
    rmSync(unit())
    expect((await install('--yes')).code).toBe(0)
    expect(everything()).toEqual(before)
  })

  it('refuses a program that the unit could not read', () => {
    expect(() => assertReadable('/usr/local/lib/node_modules/svc/bin/svc.js')).not.toThrow()
    expect(() => assertReadable('/opt/rooted/svc.js')).not.toThrow()
    for (const path of [
      '/root/svc/bin/svc.js',
      '/home/ada/svc/bin/svc.js',
      '/tmp/svc.js',
      '/run/user/0/node',
    ])
      expect(() => assertReadable(path)).toThrow('could not read')
  })

  it('refuses names that a unit could not have', async () => {
    for (const args of [
      ['--etc-dir', '/etc/a b'],
      ['--etc-dir', '/'],
      ['--user', 'a\nb'],
    ]) {
      const { code } = await install('--yes', ...args)
      expect(code, args.join(' ')).toBe(2)
    }
    expect(everything()).toEqual([])
  })

  it.skipIf(spawnSync('systemd-analyze', ['--version']).status !== 0)(
    'writes a unit that systemd accepts',
    async () => {
      await install('--yes')
      const args = ['verify', '--man=no', unit()]
      const { status, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
      expect([status, stderr]).toEqual([0, ''])
    },
  )
})

describe('svc serve uninstall', () => {
  it('leaves data, settings and secrets, and says where', async () => {
    await install('--yes')
    const before = everything()
    const shown = await uninstall('--dry-run')
    expect(shown.stderr).toContain(`Would remove ${unit()}\n`)
    expect(everything()).toEqual(before)
    const { code, stderr } = await uninstall('--yes')
    expect(code).toBe(0)
    expect(stderr).toContain(`The data stays in /var/lib/svc, the settings in ${etc('svc.env')}\n`)
    expect(stderr).toContain(`The secrets stay in ${etc('credentials')}`)
    expect(existsSync(unit())).toBe(false)
    expect(everything()).toEqual(before.filter(([path]) => path !== unit()))
    const again = await uninstall('--yes')
    expect([again.code, again.stderr]).toEqual([0, expect.stringContaining('Nothing to remove')])
  })
})
