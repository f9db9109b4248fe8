import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FakeService, me, problem, signIn } from './fake-service.ts'
import { binary, failureOf, Home, noTerminal, type Result, start } from './run.ts'

let home: Home
let service: FakeService

beforeEach(async () => {
  home = new Home()
  service = await new FakeService({
    'POST /auth/login': signIn(),
    'GET /auth/me': { body: me },
    'GET /orgs/': { body: { data: [] } },
  }).start()
  home.env.SVC_URL = service.url
})

afterEach(async () => {
  await service.stop()
  home.remove()
})

const password = ['login', '--email', 'admin@example.com', '--password-stdin']

/** Expects a sign-in whose session was not stored, and an error that says so. */
function expectUnkept(result: Result): void {
  expect(result.code).toBe(1)
  expect(failureOf(result)).toMatchObject({ code: 'session_not_kept' })
  expect(failureOf(result).hint).toContain('--store file')
  expect(existsSync(join(home.config, 'sessions'))).toBe(false)
  expect(existsSync(join(home.config, 'config.json'))).toBe(false)
}

describe.skipIf(process.platform !== 'linux')('without a Secret Service, svc login', () => {
  it('keeps nothing without consent, and says so', async () => {
    const result = await home.run([...password, '--json'], { input: 'x' })
    expectUnkept(result)
    expect(result.stderr).toContain('keychain of this machine cannot be used')
  })

  it('fails when the keychain was requested', async () => {
    const result = await home.run([...password, '--store', 'keychain', '--json'], { input: 'x' })
    expect(result.code).toBe(2)
    expect(service.calls('POST /auth/login')).toHaveLength(0)
  })

  it.skipIf(noTerminal)('asks at a terminal whether to use a file', async () => {
    const yes = await home.terminal(['login', '--email', 'admin@example.com'], {
      answers: [
        ['Password', 'x\r'],
        ['in a file', 'y\r'],
      ],
    })
    expect(yes.code).toBe(0)
    expect(home.json('config/config.json')).toMatchObject({ store: 'file' })
  })

  it.skipIf(noTerminal)('keeps nothing when the answer is no', async () => {
    const no = await home.terminal(['login', '--email', 'admin@example.com'], {
      answers: [
        ['Password', 'x\r'],
        ['in a file', 'n\r'],
      ],
    })
    expect(no.code).toBe(1)
    expect(existsSync(join(home.config, 'sessions'))).toBe(false)
  })
})

describe.skipIf(process.platform !== 'linux')('a Secret Service that never answers', () => {
  let bus: Server
  const connections = new Set<Socket>()

  beforeEach(async () => {
    const path = join(home.path, 'bus')
    bus = createServer((connection) => void connections.add(connection.on('error', () => {})))
    await new Promise<void>((resolve) => bus.listen(path, resolve))
    home.env.DBUS_SESSION_BUS_ADDRESS = `unix:path=${path}`
  })

  afterEach(() => {
    for (const connection of connections) connection.destroy()
    bus.close()
  })

  it('times out after two seconds at sign-in', async () => {
    const result = await home.run([...password, '--json'], { input: 'x' })
    expectUnkept(result)
    expect(result.stderr).toContain('no answer within 2 s')
    expect(result.ms).toBeLessThan(6000)
  })

  it('times out when a session is read from it, with a hint', async () => {
    home.signIn(service.url, {}, { store: 'keychain' })
    const result = await home.run(['orgs', '--json'])
    expect(result).toMatchObject({ code: 4, stdout: '' })
    expect(failureOf(result)).toMatchObject({ code: 'keychain_unavailable' })
    expect(result.ms).toBeLessThan(6000)
  })

  it('does not affect a session in a file', async () => {
    home.signIn(service.url)
    expect(await home.run(['orgs'])).toMatchObject({ code: 0, stderr: '' })
  })
})

const missing = ['dbus-run-session', 'gnome-keyring-daemon', 'bash'].filter(
  (name) => spawnSync(name, ['--version']).error,
)
if (missing.length > 0) console.warn(`skipped: a real Secret Service needs ${missing.join(', ')}`)

describe.skipIf(missing.length > 0)('a real Secret Service', () => {
  let keyring: Home

  beforeAll(() => {
    keyring = new Home()
    mkdirSync(join(keyring.path, 'run'), { mode: 0o700 })
  })

  afterAll(() => {
    keyring.remove()
  })

  /** Runs a script of svc calls with an unlocked or locked keyring. */
  const withKeyring = (script: string, unlock = true): Promise<Result> => {
    const open = unlock
      ? 'printf test | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1'
      : ':'
    const svc = `svc() { "${process.execPath}" "${binary}" "$@"; }`
    const env = {
      ...home.env,
      XDG_DATA_HOME: join(keyring.path, 'data'),
      XDG_RUNTIME_DIR: join(keyring.path, 'run'),
      EMAIL: 'admin@example.com',
    }
    return start('dbus-run-session', ['--', 'bash', '-c', `${open}; ${svc}; ${script}`], env, home.path)
  }

  const login = 'printf x | svc login --email "$EMAIL" --password-stdin'

  it('stores the session, and no file does', async () => {
    const result = await withKeyring(`${login} && svc orgs --json && svc auth status --json`)
    expect(result.code).toBe(0)
    expect(result.stderr).toContain('Secret Service of this machine')
    expect(result.stdout).toContain('"credential": "Secret Service of this machine')
    expect(service.calls('GET /orgs/')[0]?.headers.authorization).toBe('Bearer access-1')
    expect(existsSync(join(home.config, 'sessions'))).toBe(false)
    expect(home.json('config/config.json')).toMatchObject({ store: 'keychain' })
  })

  it('stores a refreshed session', async () => {
    const refreshed = { accessToken: 'access-7', refreshToken: 'refresh-7', expiresInSeconds: 900 }
    service.answers['POST /auth/refresh'] = { body: { tokens: refreshed } }
    service.answers['POST /auth/login'] = signIn(1, {
      tokens: { accessToken: 'access-1', refreshToken: 'refresh-1', expiresInSeconds: 1 },
    })
    const result = await withKeyring(`${login} && svc orgs -q && svc orgs -q`)
    expect(result.code).toBe(0)
    expect(service.calls('POST /auth/refresh')).toHaveLength(1)
    expect(service.calls('GET /orgs/').map(({ headers }) => headers.authorization)).toEqual([
      'Bearer access-7',
      'Bearer access-7',
    ])
  })

  it('removes the session at sign-out, which is verified', async () => {
    service.answers['POST /auth/logout'] = () => {
      service.answers['GET /auth/me'] = problem(401, 'invalid_token', 'over')
      return { body: { success: true } }
    }
    const result = await withKeyring(`${login} && svc logout --json; svc orgs`)
    expect(result.stdout).toContain('"removed": true')
    expect(result.code).toBe(4)
  })

  it('that is locked does not block commands', async () => {
    expect((await withKeyring(login)).code).toBe(0)
    const result = await withKeyring('svc orgs --json', false)
    expect(result.code).toBe(4)
    expect(result.ms).toBeLessThan(8000)
  })
})
