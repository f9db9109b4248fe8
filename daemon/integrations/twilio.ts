import type { Logger } from 'pino'
import { Problem, SetupError } from '../../src/core/errors.ts'
import type { PhoneCodes } from '../../src/messages/ports.ts'
import { type Env, readSecretVariable, readUrl } from '../variables.ts'
import type { Provider } from './provider.ts'

type TwilioSettings = { accountSid: string; authToken: string; serviceSid: string; apiUrl: string }

const longest = 10_000

/** Error codes of Twilio: https://www.twilio.com/docs/api/errors */
const maxCheckAttempts = 60202

type Reply = { status: number; body: Record<string, unknown> }

/** Twilio Verify, version 2: it generates, sends and checks the codes. */
export const twilio: Provider<PhoneCodes, TwilioSettings> = {
  prefix: 'TWILIO',
  secrets: ['TWILIO_AUTH_TOKEN'],
  read: readTwilio,
  open: (settings, _outbound, log) => twilioCodes(settings, log),
  probe: (settings) => ({
    url: new URL(serviceUrl(settings)),
    headers: { authorization: authorizationOf(settings) },
  }),
}

export function readTwilio(env: Env): TwilioSettings | undefined {
  const parts = {
    TWILIO_ACCOUNT_SID: env.TWILIO_ACCOUNT_SID || undefined,
    TWILIO_AUTH_TOKEN: readSecretVariable(env, 'TWILIO_AUTH_TOKEN'),
    TWILIO_VERIFY_SERVICE_SID: env.TWILIO_VERIFY_SERVICE_SID || undefined,
  }
  const missing = Object.entries(parts).flatMap(([name, value]) => (value === undefined ? [name] : []))
  if (missing.length === 3) return undefined
  if (missing.length > 0) throw new SetupError(`To send SMS, also set ${missing.join(' and ')}`)
  return {
    accountSid: parts.TWILIO_ACCOUNT_SID!,
    authToken: parts.TWILIO_AUTH_TOKEN!,
    serviceSid: parts.TWILIO_VERIFY_SERVICE_SID!,
    apiUrl: readUrl(env, 'TWILIO_API_URL') ?? 'https://verify.twilio.com',
  }
}

const serviceUrl = ({ apiUrl, serviceSid }: TwilioSettings): string =>
  `${apiUrl}/v2/Services/${encodeURIComponent(serviceSid)}`

const authorizationOf = ({ accountSid, authToken }: TwilioSettings): string =>
  `Basic ${Buffer.from(`${accountSid}:${authToken}`).toString('base64')}`

export function twilioCodes(settings: TwilioSettings, log: Logger, timeoutMs = longest): PhoneCodes {
  const authorization = authorizationOf(settings)
  const service = serviceUrl(settings)

  async function post(resource: string, form: Record<string, string>): Promise<Reply> {
    try {
      const reply = await fetch(`${service}/${resource}`, {
        method: 'POST',
        headers: { authorization, accept: 'application/json' },
        body: new URLSearchParams(form),
        redirect: 'error',
        signal: AbortSignal.timeout(timeoutMs),
      })
      return { status: reply.status, body: recordOf(await reply.json()) }
    } catch (error) {
      const { name, cause } = error as Error & { cause?: { code?: string } }
      throw unavailable({ reason: cause?.code ?? name })
    }
  }

  function unavailable(facts: Record<string, unknown>): Problem {
    log.warn(facts, 'the SMS verification service failed')
    return new Problem('sms_unavailable')
  }

  const refused = ({ status, body }: Reply) => unavailable({ status, twilioError: body.code })

  return {
    async send(phoneNumber) {
      const reply = await post('Verifications', { To: phoneNumber, Channel: 'sms' })
      if (reply.status !== 201 || reply.body.status !== 'pending') throw refused(reply)
    },

    async check(phoneNumber, code) {
      const reply = await post('VerificationCheck', { To: phoneNumber, Code: code })
      // The verification expired, was used, or had too many attempts: no code can be right.
      if (reply.status === 404) return false
      if (reply.status === 429 && reply.body.code === maxCheckAttempts) return false
      if (reply.status !== 200 || typeof reply.body.status !== 'string') throw refused(reply)
      return reply.body.status === 'approved'
    },
  }
}

function recordOf(body: unknown): Record<string, unknown> {
  if (typeof body === 'object' && body !== null) return body as Record<string, unknown>
  throw new TypeError('not an object')
}
