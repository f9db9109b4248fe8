import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { readTwilio, twilioCodes } from '../../daemon/integrations/twilio.ts'
import { json, startVerifyService } from './verify-service.ts'

const phone = '+491701234567'
const unavailable = {
  code: 'sms_unavailable',
  status: 502,
  message: 'SMS verification service temporarily unavailable. Please try again.',
}

async function bench(change: Record<string, string> = {}) {
  const service = await startVerifyService()
  const lines: string[] = []
  const log = pino({}, { write: (line: string) => void lines.push(line) })
  const codes = twilioCodes(readTwilio({ ...service.env, ...change })!, log, 300)
  return { service, codes, lines }
}

describe('phone codes of Twilio Verify', () => {
  it('are sent and checked by its API, and work once', async () => {
    const { service, codes } = await bench()
    await codes.send(phone)
    const code = service.codeFor(phone)
    expect(await codes.check(phone, '000000')).toBe(false)
    expect(await codes.check(phone, code)).toBe(true)
    expect(await codes.check(phone, code)).toBe(false)
    const path = (resource: string) => `/v2/Services/${service.env.TWILIO_VERIFY_SERVICE_SID}/${resource}`
    expect(service.asked[0]).toEqual({
      method: 'POST',
      path: path('Verifications'),
      type: 'application/x-www-form-urlencoded',
      authorization: expect.stringMatching(/^Basic /),
      form: { To: phone, Channel: 'sms' },
    })
    expect(service.asked[1]).toMatchObject({
      path: path('VerificationCheck'),
      form: { To: phone, Code: '000000' },
    })
  })

  it('are rejected when none was sent, and after too many attempts', async () => {
    const { service, codes } = await bench()
    expect(await codes.check(phone, '123456')).toBe(false)
    await codes.send(phone)
    for (let n = 0; n < 6; n += 1) expect(await codes.check(phone, '000000')).toBe(false)
    expect(await codes.check(phone, service.codeFor(phone))).toBe(false)
  })

  it.each<[string, Parameters<typeof json>]>([
    ['too many requests', [429, { code: 20429, message: 'Too many requests', status: 429 }]],
    ['an internal error', [500, { code: 20500, message: 'Internal', status: 500 }]],
    ['unavailable', [503, {}]],
    ['an unknown status', [200, { status: 7 }]],
    ['no object', [200, null]],
    ['a text', [201, 'fine']],
  ])('are unavailable when the service answers: %s', async (_, [status, body]) => {
    const { service, codes, lines } = await bench()
    service.answer = json(status, body)
    await expect(codes.send(phone)).rejects.toMatchObject(unavailable)
    await expect(codes.check(phone, '123456')).rejects.toMatchObject(unavailable)
    expect(lines).toHaveLength(2)
    expect(lines.join()).not.toMatch(/the-auth-token|\+49|123456/)
  })

  it('are unavailable when the service sends garbage, hangs, hangs up, or redirects', async () => {
    const { service, codes } = await bench()
    const answers: (typeof service.answer)[] = [
      (reply) => reply.writeHead(200, { 'content-type': 'application/json' }).end('{"status": "appro'),
      (reply) => reply.writeHead(200, { 'content-type': 'text/html' }).end('<h1>It works!</h1>'),
      () => {},
      (reply) => void reply.writeHead(200).write('{'),
      (reply) => reply.destroy(),
      (reply) => reply.writeHead(307, { location: `${service.url}/elsewhere` }).end(),
    ]
    for (const answer of answers) {
      service.answer = answer
      await expect(codes.send(phone)).rejects.toMatchObject(unavailable)
      await expect(codes.check(phone, '123456')).rejects.toMatchObject(unavailable)
    }
    expect(service.asked.filter(({ path }) => path === '/elsewhere')).toEqual([])
  })

  it('are unavailable with wrong credentials or when nothing listens', async () => {
    const wrong = await bench({ TWILIO_AUTH_TOKEN: 'wrong' })
    await expect(wrong.codes.send(phone)).rejects.toMatchObject(unavailable)
    const nowhere = await bench({ TWILIO_API_URL: 'http://127.0.0.1:1' })
    await expect(nowhere.codes.send(phone)).rejects.toMatchObject(unavailable)
    expect(wrong.lines.join()).toContain('"status":401')
    expect(nowhere.lines.join()).toContain('reason')
  })
})
