import { type Outbound, OutboundFailure } from '../../core/outbound.ts'
import type { Clock } from '../../core/time.ts'
import {
  bodyOf,
  type DeliveryOutcome,
  headersOf,
  outcomeOfFailure,
  outcomeOfResponse,
  type PendingDelivery,
} from '../deliveries/rules.ts'
import { activeSecrets, credentialsFault, unreadableFields, urlFault, type WebhookRecord } from '../rules.ts'

/** Sends a delivery once, if it can be sent. */
export async function attemptDelivery(
  { outbound, clock, timeoutMs }: { outbound: Outbound; clock: Clock; timeoutMs: number },
  webhook: WebhookRecord,
  delivery: PendingDelivery,
): Promise<DeliveryOutcome> {
  const { url, headers: own, retryPolicy: policy } = webhook
  const unreadable = unreadableFields(webhook)
  if (unreadable.length > 0) {
    // Retried like an unreachable receiver: the key may be configured again.
    const message = `Cannot be decrypted with the keys of the service: ${unreadable.join(', ')}. Set it anew.`
    return outcomeOfFailure(delivery, { kind: 'broken', message }, { policy, now: clock() })
  }
  const fault = urlFault(url) ?? credentialsFault(url)
  if (fault !== undefined)
    return outcomeOfFailure(delivery, { kind: 'blocked', message: fault }, { policy, now: clock() })
  try {
    const at = clock()
    const body = bodyOf(delivery)
    const headers = headersOf(delivery, body, { secrets: activeSecrets(webhook, at), headers: own, at })
    const reply = await outbound.send({ method: 'POST', url, headers, body, milliseconds: timeoutMs })
    return outcomeOfResponse(delivery, reply, { policy, now: clock() })
  } catch (error) {
    const failure =
      error instanceof OutboundFailure
        ? error
        : new OutboundFailure('broken', (error as Error).message, error)
    return outcomeOfFailure(delivery, failure, { policy, now: clock() })
  }
}
