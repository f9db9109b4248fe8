import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

type Asked = {
  method: string
  path: string
  type: string | undefined
  authorization: string | undefined
  form: Record<string, string>
}
type Verification = { code: string; checks: number }
type Answer = (reply: ServerResponse) => void

/** A stand-in for Twilio Verify on the wire, for one account and one service. */
export type VerifyService = {
  url: string
  env: Record<string, string>
  asked: Asked[]
  /** The code last sent to a number. */
  codeFor(phoneNumber: string): string
  /** When set, every reply is this one. */
  answer: Answer | undefined
}

const account = 'AC0123456789abcdef0123456789abcdef'
const token = 'the-auth-token'
const service = 'VA0123456789abcdef0123456789abcdef'
const authorization = `Basic ${Buffer.from(`${account}:${token}`).toString('base64')}`

export const json =
  (status: number, body: unknown): Answer =>
  (reply) =>
    void reply.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))

const failure = (status: number, code: number, message: string): Answer =>
  json(status, { code, message, more_info: `https://www.twilio.com/docs/errors/${code}`, status })

export async function startVerifyService(): Promise<VerifyService> {
  const verifications = new Map<string, Verification>()
  const asked: Asked[] = []
  const server = createServer(async (request, reply) => {
    const one = await read(request)
    asked.push(one)
    ;(it.answer ?? answerTo(one, verifications))(reply)
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const env = {
    TWILIO_ACCOUNT_SID: account,
    TWILIO_AUTH_TOKEN: token,
    TWILIO_VERIFY_SERVICE_SID: service,
    TWILIO_API_URL: url,
  }
  const codeFor = (phoneNumber: string) => verifications.get(phoneNumber)!.code
  const it: VerifyService = { url, env, asked, codeFor, answer: undefined }
  return it
}

async function read(request: IncomingMessage): Promise<Asked> {
  let body = ''
  for await (const chunk of request) body += chunk
  return {
    method: request.method ?? '',
    path: request.url ?? '',
    type: request.headers['content-type']?.split(';')[0],
    authorization: request.headers.authorization,
    form: Object.fromEntries(new URLSearchParams(body)),
  }
}

function answerTo(
  { method, path, type, form, ...asked }: Asked,
  verifications: Map<string, Verification>,
): Answer {
  if (asked.authorization !== authorization) return failure(401, 20003, 'Authenticate')
  const resource = path.slice(`/v2/Services/${service}/`.length)
  const known = path.startsWith(`/v2/Services/${service}/`) && method === 'POST'
  if (!known || type !== 'application/x-www-form-urlencoded') return failure(404, 20404, 'not found')
  const { To: to = '' } = form
  if (!/^\+[1-9]\d{1,14}$/.test(to)) return failure(400, 60200, 'Invalid parameter `To`')
  const sid = 'VE0123456789abcdef0123456789abcdef'
  if (resource === 'Verifications') {
    if (form.Channel !== 'sms') return failure(400, 60200, 'Invalid parameter `Channel`')
    const verification = verifications.get(to) ?? { code: String(100_000 + verifications.size), checks: 0 }
    verifications.set(to, verification)
    return json(201, {
      sid,
      service_sid: service,
      account_sid: account,
      to,
      channel: 'sms',
      status: 'pending',
      valid: false,
    })
  }
  const verification = verifications.get(to)
  if (resource !== 'VerificationCheck' || !verification) return failure(404, 20404, 'not found')
  if (verification.checks === 5) return failure(429, 60202, 'Max check attempts reached')
  verification.checks += 1
  const valid = form.Code === verification.code
  if (valid) verifications.delete(to)
  return json(200, { sid, to, channel: 'sms', status: valid ? 'approved' : 'pending', valid })
}
