import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { describe, expect, it } from 'vitest'
import { chooseProvider, type Provider } from '../../daemon/integrations/provider.ts'
import { readIntegrationSettings } from '../../daemon/integrations/settings.ts'
import { temporaryFolder } from '../databases.ts'

const MAIL_FROM = 'noreply@example.com'
const twilio = { TWILIO_ACCOUNT_SID: 'AC1', TWILIO_AUTH_TOKEN: 'token', TWILIO_VERIFY_SERVICE_SID: 'VA1' }

describe('the settings of mail and SMS', () => {
  it('without any, nothing leaves the data directory', () => {
    expect(readIntegrationSettings({})).toMatchObject({
      smtp: undefined,
      sms: undefined,
      archive: undefined,
      publicUrl: undefined,
    })
  })

  it('a mail server is set by one URL, or by its parts', () => {
    const parts = { SMTP_HOST: 'mail.example.com', SMTP_USER: 'svc', SMTP_PASSWORD: 'p@ss' }
    const whole = { SMTP_URL: 'smtp://svc:p%40ss@mail.example.com' }
    const smtp = {
      host: 'mail.example.com',
      port: 587,
      secure: false,
      startTls: 'required',
      auth: { user: 'svc', pass: 'p@ss' },
      from: MAIL_FROM,
      ca: undefined,
    }
    expect(readIntegrationSettings({ ...parts, MAIL_FROM }).smtp).toEqual(smtp)
    expect(readIntegrationSettings({ ...whole, MAIL_FROM }).smtp).toEqual(smtp)
    const secure = { port: 465, secure: true }
    expect(readIntegrationSettings({ MAIL_FROM, SMTP_URL: 'smtps://mail.example.com' }).smtp).toMatchObject(
      secure,
    )
    expect(
      readIntegrationSettings({ MAIL_FROM, SMTP_HOST: 'a.example', SMTP_PORT: '465' }).smtp,
    ).toMatchObject(secure)
    expect(
      readIntegrationSettings({ MAIL_FROM, SMTP_HOST: 'a.example', SMTP_SECURE: 'true' }).smtp,
    ).toMatchObject(secure)
  })

  it('secrets may be in files', async () => {
    const folder = await temporaryFolder()
    const file = async (name: string, text: string) => {
      await writeFile(join(folder, name), `${text}\n`)
      return join(folder, name)
    }
    const env = {
      MAIL_FROM,
      SMTP_HOST: 'mail.example.com',
      SMTP_USER: 'svc',
      SMTP_PASSWORD_FILE: await file('smtp', 'from a file'),
      ...twilio,
      TWILIO_AUTH_TOKEN: undefined,
      TWILIO_AUTH_TOKEN_FILE: await file('twilio', 'also from a file'),
    }
    const { smtp, sms } = readIntegrationSettings(env)
    expect(smtp!.auth).toEqual({ user: 'svc', pass: 'from a file' })
    expect(sms!.settings).toEqual({
      accountSid: 'AC1',
      authToken: 'also from a file',
      serviceSid: 'VA1',
      apiUrl: 'https://verify.twilio.com',
    })
    expect(
      readIntegrationSettings({ MAIL_FROM, SMTP_URL_FILE: await file('url', 'smtp://a.example:25') }).smtp,
    ).toMatchObject({ host: 'a.example', port: 25 })
  })

  it('are equal when they are read again, so that a reload keeps what is open', () => {
    const env = { ...twilio, MAIL_FROM, SMTP_URL: 'smtp://mail.example.com', AUDIT_ARCHIVE_S3_BUCKET: 'logs' }
    const [before, after] = [readIntegrationSettings(env), readIntegrationSettings(env)]
    expect([before.sms, before.archive]).not.toContain(undefined)
    expect(isDeepStrictEqual(before, after)).toBe(true)
    const changed = readIntegrationSettings({ ...env, TWILIO_AUTH_TOKEN: 'another' })
    expect(isDeepStrictEqual(before, changed)).toBe(false)
  })

  it('of two providers for one purpose are refused', () => {
    const provider = (prefix: string): Provider<string> => ({
      prefix,
      secrets: [],
      read: (env) => (env[`${prefix}_KEY`] ? {} : undefined),
      open: () => prefix,
    })
    const providers = [provider('ONE'), provider('TWO'), provider('THREE')]
    expect(chooseProvider(providers, {})).toBeUndefined()
    expect(chooseProvider(providers, { TWO_KEY: 'x' })?.provider.prefix).toBe('TWO')
    expect(() => chooseProvider(providers, { ONE_KEY: 'x', THREE_KEY: 'x' })).toThrow(
      'Only one of these can be used: ONE_*, THREE_*.',
    )
  })

  it('the public URL is the first that is set, without a trailing slash', () => {
    const DASHBOARD_URL = 'https://dash.example.com'
    const PUBLIC_APP_URL = 'https://app.example.com/svc/'
    expect(readIntegrationSettings({ DASHBOARD_URL }).publicUrl).toBe('https://dash.example.com')
    expect(readIntegrationSettings({ DASHBOARD_URL, PUBLIC_APP_URL }).publicUrl).toBe(
      'https://app.example.com/svc',
    )
    const PUBLIC_URL = 'http://svc.example.com:8080'
    expect(readIntegrationSettings({ DASHBOARD_URL, PUBLIC_APP_URL, PUBLIC_URL }).publicUrl).toBe(PUBLIC_URL)
  })

  const wrongs: [Record<string, string>, RegExp][] = [
    [{ SMTP_HOST: 'a.example' }, /^MAIL_FROM must be set/],
    [{ SMTP_HOST: 'a.example', MAIL_FROM: 'not an address' }, /^MAIL_FROM must be one address/],
    [{ SMTP_HOST: 'a.example', MAIL_FROM: 'a@b.example, c@d.example' }, /^MAIL_FROM /],
    [{ MAIL_FROM }, /^MAIL_FROM is set, but neither SMTP_HOST nor SMTP_URL/],
    [{ SMTP_PASSWORD: 'hunter2' }, /^SMTP_PASSWORD is set, but neither/],
    [{ SMTP_HOST: 'a.example', SMTP_USER: 'svc', MAIL_FROM }, /^SMTP_USER is set, but not SMTP_PASSWORD/],
    [{ SMTP_HOST: 'a.example', SMTP_PASSWORD: 'hunter2', MAIL_FROM }, /but not SMTP_USER/],
    [{ SMTP_HOST: 'a.example', SMTP_PORT: '0', MAIL_FROM }, /^SMTP_PORT /],
    [{ SMTP_HOST: 'a.example', SMTP_SECURE: 'maybe', MAIL_FROM }, /^SMTP_SECURE /],
    [{ SMTP_HOST: 'a.example', SMTP_STARTTLS: 'maybe', MAIL_FROM }, /^SMTP_STARTTLS /],
    [{ SMTP_HOST: 'a.example', SMTP_CA_FILE: '/nowhere/ca.pem', MAIL_FROM }, /^SMTP_CA_FILE cannot be read/],
    [{ SMTP_HOST: 'a.example', SMTP_URL: 'smtp://a.example', MAIL_FROM }, /^Set SMTP_URL or SMTP_HOST/],
    [{ SMTP_URL: 'http://svc:hunter2@a.example', MAIL_FROM }, /^SMTP_URL /],
    [{ SMTP_URL: 'smtp://svc:hunter2%@a.example', MAIL_FROM }, /^SMTP_URL /],
    [{ SMTP_URL: 'smtp://svc:hunter2#x@a.example', MAIL_FROM }, /^SMTP_URL /],
    [{ SMTP_URL: 'smtp://hunter2@a.example', MAIL_FROM }, /^SMTP_URL /],
    [{ SMTP_URL: 'smtp://a.example?pool=true', MAIL_FROM }, /^SMTP_URL /],
    [{ TWILIO_ACCOUNT_SID: 'AC1' }, /also set TWILIO_AUTH_TOKEN and TWILIO_VERIFY_SERVICE_SID/],
    [{ ...twilio, TWILIO_AUTH_TOKEN: '' }, /also set TWILIO_AUTH_TOKEN$/],
    [{ ...twilio, TWILIO_API_URL: 'ftp://a.example' }, /^TWILIO_API_URL /],
    [{ PUBLIC_URL: 'svc.example.com' }, /^PUBLIC_URL /],
    [{ PUBLIC_APP_URL: 'https://svc.example.com/?a=b' }, /^PUBLIC_APP_URL /],
    [{ DASHBOARD_URL: 'javascript:alert(1)' }, /^DASHBOARD_URL /],
  ]

  it.each(wrongs)('%j is refused with an error that names the variable and no secret', (env, message) => {
    let failure = ''
    try {
      readIntegrationSettings(env)
    } catch (error) {
      failure = (error as Error).message
    }
    expect(failure).toMatch(message)
    expect(failure).not.toContain('hunter2')
  })
})
