import { chmodSync, existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { until } from '../daemon/process.ts'
import { FakeService, me, problem, signIn, uuid } from './fake-service.ts'
import { failureOf, Home, noTerminal } from './run.ts'

let home: Home
let service: FakeService

beforeEach(async () => {
  home = new Home({ SVC_CREDENTIAL_STORE: 'file' })
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
const withMfa = () => {
  const pending = { tokens: null, user: null, mfaRequired: true, tempToken: 'half', mfaMethod: 'totp' }
  service.answers['POST /auth/login'] = signIn(1, pending)
  service.answers['POST /auth/mfa/verify'] = ({ body }) =>
    (body as { code: string }).code === '123456'
      ? signIn(2)
      : problem(401, 'invalid_mfa_code', 'Invalid MFA code')
}

describe('svc login --device', () => {
  const started = {
    deviceCode: 'secret-code',
    userCode: 'WDJB-MJHT',
    expiresInSeconds: 600,
    intervalSeconds: 0,
  }
  beforeEach(() => {
    const verificationUrl = `${service.url}/device`
    service.answers['POST /auth/device'] = { body: { ...started, verificationUrl } }
  })
  const answers = (...codes: string[]) => {
    service.answers['POST /auth/device/token'] = () => {
      const code = codes.shift()
      return code === undefined
        ? signIn()
        : problem({ access_denied: 403, unavailable: 503 }[code] ?? 400, code, 'Not yet')
    }
  }

  it('shows a code and an address, waits until it is approved, and stores the session', async () => {
    answers('authorization_pending', 'unavailable', 'authorization_pending')
    const { code, stdout, stderr } = await home.run(['login', '--device', '--json'])
    expect(code).toBe(0)
    expect(stderr).toContain(`  ${service.url}/device\n  WDJB-MJHT\n`)
    expect(JSON.parse(stdout)).toMatchObject({ url: service.url, store: 'file' })
    expect(stdout + stderr).not.toMatch(/secret-code|access-1/)
    expect(service.calls('POST /auth/device')[0]?.body).toEqual({
      client: expect.stringMatching(/^svc .+ on .+/),
    })
    expect(service.calls('POST /auth/device/token').length).toBeGreaterThanOrEqual(4)
    expect((await home.run(['orgs'])).code).toBe(0)
  })

  /** A browser that records the address which it is opened at. */
  const browser = () => {
    const script = home.write('browser.sh', `#!/bin/sh\nprintf %s "$1" > '${home.path}/opened'\n`)
    chmodSync(script, 0o755)
    return { BROWSER: script }
  }
  const opened = () => existsSync(join(home.path, 'opened')) && home.read('opened')

  it('opens the page where there is a browser, which knows no code', async () => {
    answers('authorization_pending')
    const { code, stderr } = await home.run(['login', '--device'], { env: browser() })
    await until(() => opened() !== false, 5000)
    expect([code, opened()]).toEqual([0, `${service.url}/device`])
    expect(stderr).toContain(
      `Your browser was opened at this address. Enter the code there:\n  ${service.url}/device\n  WDJB-MJHT\n`,
    )
    rmSync(join(home.path, 'opened'))
    const printed = await home.run(['login', '--device', '--no-browser'], { env: browser() })
    expect(printed.stderr).toContain('Open this address in a browser, on any machine')
    expect(opened()).toBe(false)
  })

  describe.skipIf(noTerminal)('is what a person at a machine with a browser is offered', () => {
    it('first: the page is opened, and the terminal waits', async () => {
      answers('authorization_pending')
      const question: [string, string] = ['How do you want to sign in?', '\r']
      const result = await home.terminal(['login'], { env: browser(), answers: [question] })
      await until(() => opened() !== false, 5000)
      expect([result.code, opened()]).toEqual([0, `${service.url}/device`])
      expect(result.stdout).toContain('  WDJB-MJHT\r\n')
      expect(result.stdout).toContain(`Signed in to ${service.url} as admin@example.com`)
      expect(service.calls('POST /auth/login')).toEqual([])
    })

    const typed: [string, string][] = [
      ['E-mail', 'admin@example.com\r'],
      ['Password', 'secret\r'],
    ]
    it('and may decline, for e-mail and password', async () => {
      const answers: [string, string][] = [['How do you want to sign in?', '\u001b[B\r'], ...typed]
      const result = await home.terminal(['login'], { env: browser(), answers })
      expect([result.code, opened()]).toEqual([0, false])
      expect(service.calls('POST /auth/device')).toEqual([])
      expect(service.calls('POST /auth/login')).toHaveLength(1)
    })

    it('types no password for a service that cannot be reached', async () => {
      const answers: [string, string][] = [['E-mail', 'admin@example.com\r']]
      const args = ['login', '--no-browser', '--url', 'http://127.0.0.1:1']
      const { code, stdout } = await home.terminal(args, { answers })
      expect(code).toBe(8)
      expect(stdout).toContain('Cannot reach http://127.0.0.1:1: connection refused')
      expect(stdout).not.toContain('Password')
    })

    it('and gets these where the service has no such page', async () => {
      service.answers['POST /auth/device'] = problem(404, 'not_found', 'Not found')
      const answers: [string, string][] = [['How do you want to sign in?', '\r'], ...typed]
      const result = await home.terminal(['login'], { env: browser(), answers })
      expect([result.code, opened()]).toEqual([0, false])
      expect(result.stdout).toContain('This service is of a version that has no page for that')
    })

    it.each<[string, string[], Record<string, string>]>([
      ['without a browser', [], {}],
      ['over SSH', [], { DISPLAY: ':0', SSH_CONNECTION: '10.0.0.1 1 10.0.0.2 22' }],
      ['with --no-browser', ['--no-browser'], { BROWSER: 'true' }],
      ['with --email', ['--email', 'admin@example.com'], { BROWSER: 'true' }],
    ])('and not %s', async (_, flags, env) => {
      const answers = typed.filter(([question]) => !(question === 'E-mail' && flags.includes('--email')))
      const result = await home.terminal(['login', ...flags], { env, answers })
      expect([result.code, result.stdout]).toEqual([0, expect.not.stringContaining('How do you want')])
    })
  })

  it('ends when it is denied, or nobody approves it', async () => {
    answers('access_denied')
    expect(failureOf(await home.run(['login', '--device', '--json']))).toMatchObject({
      code: 'access_denied',
    })
    answers('authorization_pending', 'invalid_device_code')
    const late = await home.run(['login', '--device', '--json'])
    expect(late.code).toBe(124)
    expect(failureOf(late)).toMatchObject({
      code: 'timeout',
      hint: expect.stringContaining('svc login --device'),
    })
  })
})

describe('svc auth approve', () => {
  const code = { input: 'wdjb-mjht\n' }
  const asked = {
    client: 'svc on web-1',
    ip: '203.0.113.7',
    createdAt: me.user.createdAt,
    expiresAt: me.user.createdAt,
  }
  beforeEach(async () => {
    service.answers['POST /auth/device/preview'] = { body: asked }
    service.answers['POST /auth/device/decision'] = { body: { success: true } }
    await home.run(password, { input: 'x' })
  })
  const decisions = () => service.calls('POST /auth/device/decision').map(({ body }) => body)

  it('approves or denies the code of another terminal, and says whose it is', async () => {
    const approved = await home.run(['auth', 'approve', '--user-code', '-', '--yes'], code)
    expect(approved).toMatchObject({ code: 0, stdout: 'Approved: svc on web-1 is signed in\n' })
    const denied = await home.run(['auth', 'approve', '--user-code', '-', '--deny', '--json'], code)
    expect(JSON.parse(denied.stdout)).toEqual({ decision: 'deny', client: asked.client, ip: asked.ip })
    expect(decisions()).toEqual([
      { userCode: 'wdjb-mjht', decision: 'approve' },
      { userCode: 'wdjb-mjht', decision: 'deny' },
    ])
  })

  it('approves nothing that nobody has agreed to, and takes no code as an argument', async () => {
    const unasked = await home.run(['auth', 'approve', '--user-code', '-'], code)
    expect(unasked.code).toBe(2)
    expect(unasked.stderr).toMatch(/203\.0\.113\.7, which calls itself\s+"svc on web-1"/)
    expect((await home.run(['auth', 'approve', '--user-code', 'WDJB-MJHT', '--yes'])).code).toBe(2)
    expect((await home.run(['auth', 'approve'])).code).toBe(2)
    expect(decisions()).toEqual([])
  })
})

describe('svc login', () => {
  it('stores the session, reports user, scope and place, and the next command works', async () => {
    const { code, stdout, stderr } = await home.run(password, { input: 'correct horse\n' })
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
    expect(stderr).toContain(`Signed in to ${service.url} as admin@example.com, system scope`)
    expect(stderr).toContain('mode 0600')
    expect(service.calls('POST /auth/login')[0]?.body).toEqual({
      email: 'admin@example.com',
      password: 'correct horse',
    })
    expect((await home.run(['orgs'])).code).toBe(0)
    expect(service.calls('GET /orgs/')[0]?.headers.authorization).toBe('Bearer access-1')
  })

  it('prints the same as JSON, and never a token', async () => {
    const { stdout, stderr } = await home.run([...password, '--json'], { input: 'x' })
    expect(JSON.parse(stdout)).toMatchObject({
      url: service.url,
      scope: 'system',
      store: 'file',
      mfaVerified: false,
    })
    expect(stdout + stderr).not.toMatch(/access-1|refresh-1/)
  })

  it('keeps spaces in a password, removes one line break, and reads slow input to its end', async () => {
    const line = `(sleep 0.3; printf ' two '; sleep 0.3; printf 'words \\n') | "${process.execPath}" "$0" login --email a@b.c --password-stdin`
    const { binary, start } = await import('./run.ts')
    await start('bash', ['-c', line, binary], home.env, home.path)
    expect(service.calls('POST /auth/login')[0]?.body).toMatchObject({ password: ' two words ' })
  })

  it('refuses a password on the command line', async () => {
    const result = await home.run(['login', '--email', 'a@b.c', '--password', 'hunter2', '--json'])
    expect(result.code).toBe(2)
    expect(failureOf(result).hint).toContain('--password -')
    expect(result.stderr).not.toContain('hunter2')
    expect(service.seen).toHaveLength(0)
  })

  it('reads the password from a file', async () => {
    const file = home.write('password.txt', 'from a file\n')
    await home.run(['login', '--email', 'a@b.c', '--password', `@${file}`])
    expect(service.calls('POST /auth/login')[0]?.body).toMatchObject({ password: 'from a file' })
  })

  it.each([
    [['login'], 'Missing --email'],
    [['login', '--email', 'a@b.c'], 'Missing --password-stdin'],
  ])('never prompts without a terminal: %j', async (args, message) => {
    const result = await home.run([...args, '--json'])
    expect(result.code).toBe(2)
    expect(failureOf(result).message).toBe(message)
  })

  it('sends the previous refresh token to identify this machine, to the same service only', async () => {
    await home.run(password, { input: 'x' })
    await home.run(password, { input: 'x' })
    const sent = () => service.calls('POST /auth/login').map(({ body }) => body)
    expect(sent()).toMatchObject([{ email: 'admin@example.com' }, { refreshToken: 'refresh-1' }])
    expect(sent()[0]).not.toHaveProperty('refreshToken')
    const { port } = new URL(service.url)
    await home.run(password, { input: 'x', env: { SVC_URL: `http://localhost:${port}` } })
    expect(sent()[2]).not.toHaveProperty('refreshToken')
  })

  it('exits with 4 for a wrong password, with a hint, and stores nothing', async () => {
    service.answers['POST /auth/login'] = problem(401, 'invalid_credentials', 'Invalid email or password')
    const { code, stderr } = await home.run(password, { input: 'x' })
    expect(code).toBe(4)
    expect(stderr).toContain('svc password forgot')
    expect(existsSync(join(home.config, 'config.json'))).toBe(false)
  })

  it('explains how to enroll a required factor', async () => {
    service.answers['POST /auth/login'] = signIn(1, { mfaEnrollmentRequired: true, enrollUrl: '/mfa' })
    const { code, stderr } = await home.run(password, { input: 'x' })
    expect(code).toBe(0)
    expect(stderr).toContain('svc mfa setup, then svc mfa enable')
  })

  it('warns about a password sent over plain HTTP to another machine', async () => {
    const { stderr } = await home.run(password, {
      input: 'x',
      env: { SVC_URL: 'http://svc.test', HTTP_PROXY: 'http://127.0.0.1:1' },
    })
    expect(stderr).toContain('http://svc.test is not encrypted')
  })
})

describe('a second factor', () => {
  it('accepts a code from a flag or standard input', async () => {
    withMfa()
    expect((await home.run([...password, '--otp', '123456'], { input: 'x' })).code).toBe(0)
    expect((await home.run([...password, '--otp', '-'], { input: 'x\n123456\n' })).code).toBe(0)
    const sent = service.calls('POST /auth/mfa/verify').map(({ body }) => body)
    expect(sent).toEqual(Array(2).fill({ tempToken: 'half', code: '123456' }))
    expect(home.json(`config/sessions/127.0.0.1-${new URL(service.url).port}.json`)).toMatchObject({
      accessToken: 'access-2',
    })
  })

  it('without a terminal gives an error that names the flag', async () => {
    withMfa()
    const result = await home.run([...password, '--json'], { input: 'x' })
    expect(result.code).toBe(2)
    expect(failureOf(result).message).toBe('Missing --otp')
  })

  it('exits with 4 for a wrong code', async () => {
    withMfa()
    expect((await home.run([...password, '--otp', '000000'], { input: 'x' })).code).toBe(4)
  })

  it.skipIf(noTerminal)(
    'is prompted for at a terminal, again after a mistake, and the password is not echoed',
    async () => {
      withMfa()
      const { code, stdout } = await home.terminal(['login'], {
        answers: [
          ['E-mail', 'admin@example.com\r'],
          ['Password', 'correct horse\r'],
          ['Code of', '111111\r'],
          ['not right', '123456\r'],
        ],
      })
      expect(code).toBe(0)
      expect(stdout).not.toContain('correct horse')
      expect(stdout).toContain('Signed in')
    },
  )

  it('is enabled with a code, and the session continues with the new tokens', async () => {
    home.signIn(service.url)
    service.answers['POST /auth/mfa/enable'] = {
      body: {
        success: true,
        message: 'MFA enabled',
        tokens: { accessToken: 'access-9', refreshToken: 'refresh-9', expiresInSeconds: 900 },
      },
    }
    const result = await home.run(['mfa', 'enable', '--code', '-'], { input: '123456\n' })
    expect(result).toMatchObject({ code: 0, stdout: 'MFA enabled\n' })
    expect(home.json('config/sessions/test.json')).toMatchObject({
      accessToken: 'access-9',
      refreshToken: 'refresh-9',
    })
    const json = await home.run(['mfa', 'enable', '--code', '123456', '--json'])
    expect(json.stdout).not.toContain('access-9')
  })

  it('is set up with all data for an authenticator', async () => {
    home.signIn(service.url)
    const setup = {
      secret: 'JBSWY3DPEHPK3PXP',
      otpAuthUrl: 'otpauth://totp/svc:admin?secret=JBSWY3DPEHPK3PXP',
      qrCodeDataUrl: 'data:image/png;base64,AAAA',
      recoveryCodes: ['ABCD-2345', 'EFGH-6789'],
    }
    service.answers['POST /auth/mfa/setup'] = { body: setup }
    expect(JSON.parse((await home.run(['mfa', 'setup', '--json'])).stdout)).toEqual(setup)
    const { stdout } = await home.run(['mfa', 'setup'])
    for (const text of [setup.secret, setup.otpAuthUrl, ...setup.recoveryCodes])
      expect(stdout).toContain(text)
    expect(stdout).not.toMatch(/[▀▄█]/)
    if (!noTerminal) expect((await home.terminal(['mfa', 'setup'])).stdout).toMatch(/[▀▄█]{5}/)
  })
})

describe('the session store', () => {
  const context = () => `127.0.0.1-${new URL(service.url).port}`

  it('creates a private file in a private folder', async () => {
    await home.run(password, { input: 'x' })
    expect(home.mode(`config/sessions/${context()}.json`)).toBe('600')
    expect(home.mode('config/config.json')).toBe('600')
    expect(home.mode('config')).toBe('700')
    expect(home.read('config/config.json')).not.toMatch(/access-1|refresh-1/)
  })

  it('remembers the choice, says where the session is, and does not warn of what was asked for', async () => {
    const env = { SVC_CREDENTIAL_STORE: undefined }
    const first = await home.run([...password, '--store', 'file'], { input: 'x', env })
    const second = await home.run(password, { input: 'x', env })
    const bySetting = await home.run(password, { input: 'x', env: { SVC_CREDENTIAL_STORE: 'file' } })
    for (const { code, stderr } of [first, second, bySetting]) {
      expect(code).toBe(0)
      expect(stderr).toMatch(/the session is in file \S+ \(mode 0600, unencrypted\)/)
      expect(stderr).not.toContain('Warning')
    }
  })

  it('none keeps nothing, and says so', async () => {
    const { code, stderr } = await home.run([...password, '--store', 'none'], { input: 'x' })
    expect(code).toBe(0)
    expect(stderr).toContain('not stored')
    expect(existsSync(join(home.config, 'sessions'))).toBe(false)
    expect((await home.run(['orgs'])).code).toBe(4)
  })

  it('sends a session only to the URL it was created for', async () => {
    const other = await new FakeService({ 'GET /orgs/': { body: { data: [] } } }).start()
    await home.run(password, { input: 'x' })
    const result = await home.run(['orgs', '--url', other.url])
    expect(result.code).toBe(4)
    expect(other.seen).toHaveLength(0)
    await other.stop()
  })

  it('is overridden by SVC_TOKEN and --token, and does not refresh when they are refused', async () => {
    await home.run(password, { input: 'x' })
    service.answers['GET /orgs/'] = ({ headers }) =>
      headers.authorization === 'Bearer good'
        ? { body: { data: [] } }
        : problem(401, 'invalid_token', 'Invalid or expired token')
    expect((await home.run(['orgs'], { env: { SVC_TOKEN: 'good' } })).code).toBe(0)
    expect((await home.run(['orgs', '--token', '-'], { input: 'good\n' })).code).toBe(0)
    const refused = await home.run(['orgs', '--json'], { env: { SVC_TOKEN: 'bad' } })
    expect(refused.code).toBe(4)
    expect(failureOf(refused).hint).toContain('SVC_TOKEN')
    expect((await home.run(['orgs', '--token', 'good'])).code).toBe(2)
    expect(service.calls('POST /auth/refresh')).toHaveLength(0)
  })
})

describe('svc logout', () => {
  it('ends the session at the service, removes it locally, and verifies both', async () => {
    home.signIn(service.url)
    let over = false
    service.answers['POST /auth/logout'] = () => {
      over = true
      return { body: { success: true } }
    }
    service.answers['GET /auth/me'] = () => (over ? problem(401, 'invalid_token', 'over') : { body: me })
    const { code, stdout } = await home.run(['logout', '--json'])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({ url: service.url, signedOut: true, revoked: true, removed: true })
    expect(service.calls('POST /auth/logout').at(-1)?.body).toEqual({ everywhere: false })
    expect(existsSync(join(home.config, 'sessions/test.json'))).toBe(false)
    expect((await home.run(['orgs'])).code).toBe(4)
    expect(await home.run(['logout'])).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('Not signed in'),
    })
  })

  it('--everywhere ends every session, and fails where a session that is over could not', async () => {
    home.signIn(service.url)
    service.answers['POST /auth/logout'] = { body: { success: true } }
    service.answers['GET /auth/me'] = problem(401, 'invalid_token', 'over')
    const done = await home.run(['logout', '--everywhere'])
    expect([done.code, done.stderr]).toEqual([
      0,
      expect.stringContaining(`Signed out of ${service.url} everywhere`),
    ])
    expect(service.calls('POST /auth/logout').at(-1)?.body).toEqual({ everywhere: true })
    home.signIn(service.url, { refreshToken: undefined })
    service.answers['POST /auth/logout'] = problem(401, 'invalid_token', 'over')
    const late = await home.run(['logout', '--everywhere', '--json'])
    expect([late.code, failureOf(late).message]).toEqual([
      4,
      expect.stringContaining('others were not revoked'),
    ])
    home.signIn(service.url, { refreshToken: undefined })
    expect((await home.run(['logout'])).code).toBe(0)
  })

  it('fails when the service still accepts the token', async () => {
    home.signIn(service.url)
    service.answers['POST /auth/logout'] = { body: { success: true } }
    expect((await home.run(['logout'])).code).toBe(1)
  })

  it('removes the local session even if the service cannot be reached, and says so', async () => {
    home.signIn('http://127.0.0.1:1')
    const result = await home.run(['logout', '--json'], { env: { SVC_URL: undefined } })
    expect(result.code).toBe(8)
    expect(failureOf(result).message).toContain('did not revoke it')
    expect(existsSync(join(home.config, 'sessions/test.json'))).toBe(false)
  })
})

it('svc auth status shows the age of the second factor', async () => {
  home.signIn(service.url)
  const mfaVerifiedAt = new Date(Date.now() - 3 * 3_600_000).toISOString()
  service.answers['GET /auth/me'] = { body: { ...me, mfaVerified: true, mfaVerifiedAt } }
  const { mfa } = JSON.parse((await home.run(['auth', 'status', '--json'])).stdout)
  expect(mfa).toMatchObject({ verified: true, verifiedAt: mfaVerifiedAt, age: '3 h' })
  expect((await home.run(['auth', 'status'])).stdout).toMatch(/ Age: +3 h$/m)
  // A service of before has no such field.
  service.answers['GET /auth/me'] = { body: { ...me, mfaVerified: true } }
  expect(JSON.parse((await home.run(['auth', 'status', '--json'])).stdout).mfa.age).toBeNull()
})

it('svc auth status shows user, expiry and credential store', async () => {
  home.signIn(service.url)
  const status = JSON.parse((await home.run(['auth', 'status', '--json'])).stdout)
  expect(status).toMatchObject({
    url: service.url,
    context: 'test',
    user: { id: uuid(1), email: 'admin@example.com' },
    scope: 'system',
    mfa: { enabled: false, verified: false },
    renewedAutomatically: true,
  })
  expect(status.credential).toContain(join(home.config, 'sessions/test.json'))
  expect(Date.parse(status.accessTokenExpiresAt)).toBeGreaterThan(Date.now())
})
