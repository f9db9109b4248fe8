import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import { emit } from '../events/outbox.ts'
import type { Db } from '../storage/open.ts'
import type { Alert, NewAlert } from './contract.ts'
import { alertEvent, makeAlert } from './rules.ts'
import { insertAlert } from './store.ts'

/** Stores an alert and tells webhooks, in the transaction of what caused it. */
export async function raiseAlert(db: Db, wanted: NewAlert & { orgId: string }, now: Instant): Promise<Alert> {
  const alert = makeAlert(wanted, { id: newId(), now })
  await insertAlert(db, alert)
  await emit(db, alertEvent('alert.triggered', alert), now)
  return alert
}
