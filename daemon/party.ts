import type { Caller } from '../src/handler.ts'
import type { Party } from '../src/storage/turns.ts'
import { networkOf } from './address.ts'
import { contextOf } from './idempotency.ts'

/** For whom a request is worked on. Whoever is not signed in shares one turn with all others who are not. */
export function partyOf({
  caller = { kind: 'nobody' },
  tenant,
  client,
}: {
  caller?: Caller
  tenant?: string
  client: { ip: string }
}): Party {
  if (caller.kind === 'nobody') return ['nobody', networkOf(client.ip)]
  if (caller.kind === 'agent') return agentParty(caller)
  const context = contextOf(caller.scope)
  return [tenant ?? context, context, caller.id]
}

export const agentParty = ({
  partnerId,
  orgId,
  deviceId,
}: {
  partnerId: string
  orgId: string
  deviceId: string
}): Party => [`partner ${partnerId}`, orgId, deviceId]
