import { afterAll, describe, expect, it } from 'vitest'
import { eventOf, secret, signedHeaders, without } from '../webhooks/signed.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

const body = JSON.stringify(eventOf('user.login', { email: 'a@example.com' }))
const bodyFile = home.write('body.json', body)
const secretFile = `@${home.write('secret', `${secret}\n`)}`
const now = Date.now()
const good = signedHeaders(body, { at: now })

const linesOf = (headers: Record<string, string>) =>
  Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
let files = 0
const saved = (headers: Record<string, string>) => {
  files += 1
  return home.write(`headers-${files}`, linesOf(headers).join('\n'))
}
const verify = (args: string[], input?: string) =>
  home.run(['webhooks', 'verify', '--secret', secretFile, ...args], input === undefined ? {} : { input })

describe('svc webhooks verify', () => {
  it('gives the result of each signature, and its time', async () => {
    const { code, stdout, stderr } = await verify([bodyFile, '--headers', saved(good)])
    expect([code, stderr]).toEqual([0, ''])
    const at = new Date(now - (now % 1000)).toISOString()
    expect(stdout).toMatch(
      new RegExp(`^native: valid\nStandard Webhooks: valid\nsigned at ${at}, \\d+ s ago\n$`),
    )
    const one = await verify([bodyFile, '--headers', saved(without(good, /signature-timestamp/))])
    expect(one.code).toBe(0)
    expect(one.stdout).toContain('native: absent (missing: X-Service-Signature-Timestamp)\n')
  })

  it('reads the body from standard input, and headers from flags or any file with headers', async () => {
    const flags = linesOf(without(good, /^webhook/)).flatMap((line) => ['--header', line])
    const piped = await verify(['--json', ...flags], body)
    expect(JSON.parse(piped.stdout)).toEqual({
      verdict: 'valid',
      native: 'valid',
      standard: 'absent',
      signedAt: new Date(now).toISOString(),
      reason: null,
    })
    const head = 'POST /hooks HTTP/1.1\r\nHost: receiver\r\n'
    const raw = `${head}${linesOf(good).join('\r\n').toUpperCase()}`.replace(/: .*/g, '')
    expect(raw).toContain('X-SERVICE-SIGNATURE')
    const named = linesOf(good).map((line) => line.replace(/^[^:]*/, (name) => name.toUpperCase()))
    const file = home.write('request', `${head}${named.join('\r\n')}\r\n\r\n${body}`)
    expect((await verify(['-', '--headers', file], body)).code).toBe(0)
    const wins = await verify([bodyFile, '--headers', file, '--header', 'X-Service-Signature:sha256=00'])
    expect(wins.code).toBe(1)
  })

  it('verifies bytes without any conversion', async () => {
    const bytes = Buffer.from([0xff, 0xfe, 0x0a, 0x00])
    const file = home.write('bytes', bytes as unknown as string)
    expect((await verify([file, '--headers', saved(signedHeaders(bytes))])).code).toBe(0)
    const longer = await verify(['--headers', saved(good)], `${body}\n`)
    expect([longer.code, longer.stderr]).toEqual([1, expect.stringContaining('no line end added or lost')])
  })

  it('exits with 1 when a signature is wrong or too old', async () => {
    const tampered = await verify(['--json', '--headers', saved(good)], body.replace('a@', 'b@'))
    expect([tampered.code, tampered.stderr]).toEqual([1, ''])
    expect(JSON.parse(tampered.stdout)).toMatchObject({ verdict: 'invalid', native: 'invalid' })
    const mixed = await verify([bodyFile, '--headers', saved({ ...good, 'webhook-id': 'x' })])
    expect([mixed.code, mixed.stdout]).toEqual([1, expect.stringContaining('Standard Webhooks: invalid')])
    const old = saved(signedHeaders(body, { at: now - 3_600_000 }))
    expect((await verify([bodyFile, '--headers', old])).code).toBe(0)
    const late = await verify([bodyFile, '--headers', old, '--tolerance', '300'])
    expect([late.code, late.stderr]).toEqual([1, ''])
    expect(late.stdout).toMatch(
      /^native: valid\n.*\nsigned at .*, 36\d\d s ago, more than the 300 s allowed\n$/,
    )
  })

  it('exits with 9 when there is no signature to check', async () => {
    const result = await verify([bodyFile, '--json', '--header', 'X-Own: 1'])
    expect([result.code, result.stdout]).toEqual([9, ''])
    expect(failureOf(result)).toMatchObject({
      code: 'unsigned',
      message: 'Cannot tell: there is no signature',
      hint: expect.stringContaining('--headers FILE'),
    })
    const partly = await verify([bodyFile, '--headers', saved(without(good, /timestamp/))])
    expect(partly.code).toBe(9)
    expect(partly.stderr).toContain('missing: X-Service-Signature-Timestamp, webhook-timestamp')
  })

  it('exits with 2 for invalid arguments', async () => {
    const wrong: [message: RegExp, args: string[]][] = [
      [/body and --secret cannot both come from standard input/, ['--secret', '-']],
      [/body and --secret cannot both come from standard input/, ['-', '--secret', '-']],
      [/Missing --secret/, [bodyFile]],
      [/--secret takes no value/, [bodyFile, '--secret', secret]],
      [/Cannot read the body from .*missing: ENOENT/, [`${bodyFile}missing`, '--secret', secretFile]],
      [/greater than or equal to 1/, [bodyFile, '--secret', secretFile, '--tolerance', '0']],
      [/--header is not a header: webhook-id/, [bodyFile, '--secret', secretFile, '--header', 'webhook-id']],
      [/line 2 of the headers is not a header: b/, [bodyFile, '--secret', secretFile, '--headers', broken]],
    ]
    for (const [message, args] of wrong) {
      const result = await home.run(['webhooks', 'verify', ...args], { input: 'x' })
      expect([result.code, result.stdout]).toEqual([2, ''])
      expect(result.stderr).toMatch(message)
    }
  })
})

const broken = home.write('broken', 'HTTP/1.1 200 OK\na: 1\nb\n')
