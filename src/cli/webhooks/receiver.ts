import type { IncomingMessage } from 'node:http'
import { printNote } from '../print.ts'
import {
  type Headers,
  headersOf,
  parseDelivery,
  type ReceivedDelivery,
  RecentIds,
  readBody,
} from './delivery.ts'
import type { PrintDelivery } from './delivery-printer.ts'
import { errorReply, type Forward, type ReceiverReply } from './forwarder.ts'
import { checkSignature } from './signature-check.ts'

export type ReceiverOptions = {
  /** Without one signatures are not checked. */
  secret: string | undefined
  /** Seconds. */
  tolerance: number
  /** Event types; undefined for all. */
  wanted: ReadonlySet<string> | undefined
  forward: Forward | undefined
  print: PrintDelivery
}

const accepted: ReceiverReply = {
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: '{"received":true}\n',
}

/** Answers each request as a receiver of deliveries should. */
export function receiver(options: ReceiverOptions) {
  const receive = deliveryHandler(options)

  return async (request: IncomingMessage): Promise<ReceiverReply> => {
    if (request.method !== 'POST') {
      request.resume()
      return errorReply(405, 'Deliveries come by POST', { allow: 'POST' })
    }
    const body = await readBody(request)
    if (body === undefined) {
      printNote('A request with more than 1 MiB was refused')
      return errorReply(413, 'A delivery has at most 1 MiB')
    }
    return receive(headersOf(request), body)
  }
}

/** Checks, forwards and prints a delivery. Names of headers are in lower case. */
export function deliveryHandler({ secret, tolerance, wanted, forward, print }: ReceiverOptions) {
  const recent = new RecentIds()

  return async (headers: Headers, body: Buffer): Promise<ReceiverReply> => {
    const receivedAt = new Date().toISOString()
    const { eventId, deliveryId, sequence, type, orgId, event } = parseDelivery(headers, body)
    const judged = secret === undefined ? undefined : checkSignature(secret, headers, body, { tolerance })
    const delivery: ReceivedDelivery = {
      receivedAt,
      eventId,
      deliveryId,
      sequence,
      type,
      orgId,
      signature: judged?.verdict ?? 'unchecked',
      reason: judged?.reason ?? null,
      again: eventId !== null && recent.has(eventId),
      forwarded: null,
      event,
    }
    if (delivery.reason !== null) {
      await print(delivery)
      return errorReply(401, `The signature is refused: ${delivery.reason}`)
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
