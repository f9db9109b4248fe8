import { chmodSync } from 'node:fs'
import { generateSync } from 'otplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { otpGeneratorFrom } from '../../src/cli/otp-secret.ts'
import { FakeService, me, problem, signIn } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const secret = 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP'

let home: Home
let service: FakeService

beforeEach(async () => {
  home = new Home({ SVC_CREDENTIAL_STORE: 'file' })
  const pending = { tokens: null, user: null, mfaRequired: true, tempToken: 'half', mfaMethod: 'totp' }
  service = await new FakeService({
    'POST /auth/login': signIn(1, pending),
    'POST /auth/mfa/verify': signIn(2),
    'GET /auth/me': { body: me },
  }).start()
  home.env.SVC_URL = service.url
})

afterEach(async () => {
  await service.stop()
  home.remove()
})

const password = ['login', '--email', 'ci@example.com', '--password-stdin', '--otp-secret-file']
const login = (path: string) => home.run([...password, path, '--json'], { input: 'correct horse' })
const now = () => Math.floor(Date.now() / 1000)

describe('an authenticator secret in a file', () => {
  it.each([
    ['base32', secret],
    ['base32 in groups of four', 'jbsw y3dp ehpk 3pxp jbsw y3dp ehpk 3pxp\n'],
    ['an otpauth address', `otpauth://totp/svc:ci@example.com?issuer=svc&secret=${secret}`],
  ])('signs in: %s', async (_, text) => {
    const before = now()
    const { code, stdout } = await login(home.write('totp.txt', text))
    expect([code, JSON.parse(stdout).store]).toEqual([0, 'file'])
    const [call] = service.calls('POST /auth/mfa/verify')
    const codes = [before, now()].map((epoch) => generateSync({ secret, epoch }))
    expect(codes).toContain((call!.body as { code: string }).code)
  })

  it('must be readable by its owner only', async () => {
    const path = home.write('totp.txt', secret)
    for (const mode of [0o640, 0o604, 0o660]) {
      chmodSync(path, mode)
      const result = await login(path)
      const message = `${path} can be read by others (mode 0${mode.toString(8)})`
      expect([result.code, failureOf(result)]).toEqual([
        2,
        expect.objectContaining({ message, hint: `chmod 600 ${path}` }),
      ])
    }
    expect(service.seen).toEqual([])
  })

  it.each([
    ['', 'contains no secret'],
    ['hunter2', 'contains no secret'],
    ['otpauth://hotp/svc?secret=JBSWY3DPEHPK3PXP', 'contains no otpauth://totp/ address'],
    [`otpauth://totp/svc?secret=${secret}&digits=12`, 'unknown settings'],
  ])('is not %j', async (text, message) => {
    const result = await login(home.write('totp.txt', text))
    expect([result.code, failureOf(result).message]).toEqual([2, expect.stringContaining(message)])
    expect(result.stderr).not.toContain('hunter2')
  })

  it('that is missing is reported, and no password is sent', async () => {
    const result = await login(`${home.path}/none`)
    expect([result.code, failureOf(result).message]).toEqual([2, expect.stringContaining('ENOENT')])
    expect(service.seen).toEqual([])
  })

  it('is refused when the codes come by SMS', async () => {
    const pending = { tokens: null, user: null, mfaRequired: true, tempToken: 'half', mfaMethod: 'sms' }
    service.answers['POST /auth/login'] = signIn(1, pending)
    const result = await login(home.write('totp.txt', secret))
    expect([result.code, failureOf(result).message]).toEqual([2, expect.stringContaining('come by SMS')])
  })

  it('gives each code once, and waits for the next one', async () => {
    const path = home.write(
      'totp.txt',
      `otpauth://totp/a?secret=${secret}&period=1&digits=8&algorithm=SHA256`,
    )
    const codes = otpGeneratorFrom(path)
    const [first, second] = [await codes.next(), await codes.next()]
    expect(first).toMatch(/^\d{8}$/)
    expect(second).not.toBe(first)
  })

  it('of another account is tried twice at most', async () => {
    service.answers['POST /auth/mfa/verify'] = problem(401, 'invalid_mfa_code', 'Invalid MFA code')
    const result = await login(home.write('totp.txt', `otpauth://totp/a?secret=${secret}&period=1`))
    expect([result.code, failureOf(result).code]).toEqual([4, 'invalid_mfa_code'])
    expect(service.calls('POST /auth/mfa/verify')).toHaveLength(2)
  })
})
