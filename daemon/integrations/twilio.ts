import type { Logger } from 'pino'
import { Problem } from '../../src/core/errors.ts'
import type { PhoneCodes } from '../../src/messages/ports.ts'
import type { TwilioSettings } from './settings.ts'

const longest = 10_000

/** Error codes of Twilio: https://www.twilio.com/docs/api/errors */
const maxCheckAttempts = 60202

type Reply = { status: number; body: Record<string, unknown> }

/** Twilio Verify, version 2: it generates, sends and checks the codes. */
export function twilioCodes(settings: TwilioSettings, log: Logger, timeoutMs = longest): PhoneCodes {
  const { accountSid, authToken, serviceSid, apiUrl } = settings
  const authorization = `Basic ${Buffer.from(`${accountSid}:${authToken}`).toString('base64')}`
  const service = `${apiUrl}/v2/Services/${encodeURIComponent(serviceSid)}`

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
