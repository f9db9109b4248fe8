import type { IncomingMessage } from 'node:http'
import { parseJson } from '../../core/json.ts'
import type { SignatureCheck } from './signature-check.ts'

/** The result of forwarding. */
export type ForwardResult = { status: number; milliseconds: number } | { error: string }

/** A delivery that was received, as `--json` prints it. */
export type ReceivedDelivery = {
  receivedAt: string
  eventId: string | null
  deliveryId: string | null
  sequence: number | null
  type: string | null
  orgId: string | null
  /** `unchecked`: no secret was given. */
  signature: SignatureCheck['verdict'] | 'unchecked'
  /** Why the signature was refused. */
  reason: string | null
  /** The event was received before. */
  again: boolean
  forwarded: ForwardResult | null
  /** The body; null when it is not JSON. */
  event: unknown
}

export type Headers = Readonly<Record<string, string>>

export const headersOf = ({ headers }: IncomingMessage): Headers =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))

const maxBodyBytes = 1 << 20

/** The body of a request; undefined when it is too large. */
export async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request) {
    length += (chunk as Buffer).length
    if (length <= maxBodyBytes) chunks.push(chunk as Buffer)
    else chunks.length = 0
  }
  return length <= maxBodyBytes ? Buffer.concat(chunks) : undefined
}

type ParsedDelivery = Pick<
  ReceivedDelivery,
  'eventId' | 'deliveryId' | 'sequence' | 'type' | 'orgId' | 'event'
>

/** Id and type of a delivery. The body takes precedence over the headers: only it is signed. */
export function parseDelivery(headers: Headers, body: Buffer): ParsedDelivery {
  const event = parseJson(body) ?? null
  const said = (key: string): string | null => {
    const value = (event as Record<string, unknown> | null)?.[key]
    return typeof value === 'string' ? value : null
  }
  const sequence = Number(headers['x-service-sequence'] ?? Number.NaN)
  return {
    eventId: said('id') ?? headers['x-service-event-id'] ?? headers['webhook-id'] ?? null,
    deliveryId: headers['x-service-delivery-id'] ?? null,
    sequence: Number.isSafeInteger(sequence) ? sequence : null,
    type: said('type') ?? headers['x-service-event-type'] ?? null,
    orgId: said('orgId'),
    event,
  }
}

/** The ids of the last received events. */
export class RecentIds {
  readonly #ids = new Set<string>()
  readonly #max: number

  constructor(max = 10_000) {
    this.#max = max
  }

  has(id: string): boolean {
    return this.#ids.has(id)
  }

  add(id: string): void {
    // No event has an id of this length; the memory is bounded.
    if (id.length > 100) return
    this.#ids.delete(id)
    this.#ids.add(id)
    if (this.#ids.size > this.#max) this.#ids.delete(this.#ids.values().next().value!)
  }
}
