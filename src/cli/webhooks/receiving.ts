import type { IncomingMessage } from 'node:http'
import { say } from '../print.ts'
import { bodyOf, type Delivery, headersOf, Recent, told } from './delivery.ts'
import type { PrintDelivery } from './delivery-lines.ts'
import { type Answer, type Forward, problem } from './forwarding.ts'
import { judge } from './judging.ts'

export type Receiving = {
  /** Without one signatures are not checked. */
  secret: string | undefined
  /** Seconds. */
  tolerance: number
  /** Event types; undefined for all. */
  wanted: ReadonlySet<string> | undefined
  forward: Forward | undefined
  print: PrintDelivery
}

const accepted: Answer = {
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: '{"received":true}\n',
}

/** Answers each request as a receiver of deliveries should. */
export function receiver({ secret, tolerance, wanted, forward, print }: Receiving) {
  const recent = new Recent()

  return async (request: IncomingMessage): Promise<Answer> => {
    if (request.method !== 'POST') {
      request.resume()
      return problem(405, 'Deliveries come by POST', { allow: 'POST' })
    }
    const body = await bodyOf(request)
    const receivedAt = new Date().toISOString()
    if (body === undefined) {
      say('A request with more than 1 MiB was refused')
      return problem(413, 'A delivery has at most 1 MiB')
    }
    const headers = headersOf(request)
    const { eventId, deliveryId, sequence, type, orgId, event } = told(headers, body)
    const judged = secret === undefined ? undefined : judge(secret, headers, body, { tolerance })
    const delivery: Delivery = {
      ...{ receivedAt, eventId, deliveryId, sequence, type, orgId },
      signature: judged?.verdict ?? 'unchecked',
      reason: judged?.reason ?? null,
      again: eventId !== null && recent.has(eventId),
      forwarded: null,
      event,
    }
    if (delivery.reason !== null) {
      await print(delivery)
      return problem(401, `The signature is refused: ${delivery.reason}`)
    }
    if (wanted && !wanted.has(type ?? '')) return accepted
    if (eventId !== null) recent.add(eventId)
    if (!forward) {
      await print(delivery)
      return accepted
    }
    const { forwarded, answer } = await forward(headers, body)
    await print({ ...delivery, forwarded })
    return answer
  }
}
