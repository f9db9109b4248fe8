import { Problem } from '../core/errors.ts'
import { fold } from '../core/fold.ts'
import type { CursorPage, CursorPageQuery } from '../core/page.ts'
import { isNarrowed, ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { contains, idStartsWith } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { readCursorPage } from '../storage/query/pages.ts'
import { inGroups, inScope, inSites } from '../storage/query/scope.ts'
import { rowsOf } from '../storage/schema/rows.ts'
import type { AlertRow } from '../storage/schema/tables.ts'
import type { Alert } from './contract.ts'

type PublicRow = Omit<AlertRow, 'title_key' | 'message_key'>

const alertRows = rowsOf<PublicRow>()({ json: ['context'] })

/** All columns except the folded copies. */
const columns = [
  'id',
  'org_id',
  'device_id',
  'rule_id',
  'status',
  'severity',
  'title',
  'message',
  'context',
  'triggered_at',
  'acknowledged_at',
  'acknowledged_by',
  'escalated_at',
  'escalated_by',
  'resolved_at',
  'resolved_by',
  'resolution_note',
  'created_at',
  'updated_at',
] as const

const toAlert = (row: PublicRow): Alert => alertRows.read(row) as Alert

/** An alert about a device is visible where the device is; one without a device is hidden from restricted callers. */
const alertsIn = (db: Db, scope: Scope) =>
  db
    .selectFrom('alerts')
    .where(inScope(scope, 'alerts.org_id'))
    .$if(isNarrowed(scope), (q) =>
      q.where('alerts.device_id', 'in', (eb) =>
        eb
          .selectFrom('devices')
          .select('devices.id')
          .where(inSites(scope, 'devices.site_id'))
          .where(inGroups(scope, 'devices.id')),
      ),
    )

export type AlertQuery = CursorPageQuery & {
  orgId?: string | undefined
  deviceId?: string | undefined
  status?: string | undefined
  severity?: string | undefined
  since?: Instant | undefined
  until?: Instant | undefined
  search?: string | undefined
  idPrefix?: string | undefined
}

/** Newest first. */
export async function listAlerts(db: Db, scope: Scope, query: AlertQuery): Promise<CursorPage<Alert>> {
  const { orgId, deviceId, status, severity, since, until, search, idPrefix } = query
  const found = alertsIn(db, scope)
    .$if(orgId !== undefined, (q) => q.where('org_id', '=', orgId!))
    .$if(deviceId !== undefined, (q) => q.where('device_id', '=', deviceId!))
    .$if(status !== undefined, (q) => q.where('status', '=', status!))
    .$if(severity !== undefined, (q) => q.where('severity', '=', severity!))
    .$if(since !== undefined, (q) => q.where('triggered_at', '>=', since!))
    .$if(until !== undefined, (q) => q.where('triggered_at', '<', until!))
    .$if(idPrefix !== undefined, (q) => q.where(idStartsWith('alerts.id', idPrefix!)))
    .$if(!!search, (q) => q.where((eb) => eb.or([contains('title', search!), contains('message', search!)])))
  return readCursorPage(
    found,
    query,
    { by: ['triggered_at', 'id'], direction: 'desc', keyOf: ({ triggeredAt, id }) => [triggeredAt, id] },
    (q) => q.select(columns),
    toAlert,
  )
}

/** How many alerts nobody has closed, by status and severity. */
export const countOpenAlerts = (
  db: Db,
  scope: Scope,
): Promise<{ status: string; severity: string; alerts: number }[]> =>
  alertsIn(db, scope)
    .select(({ fn }) => ['status', 'severity', fn.countAll<number>().as('alerts')])
    .where('status', 'in', ['active', 'acknowledged'])
    .groupBy(['status', 'severity'])
    .execute()

/** @throws not_found, also for an alert outside the scope */
export async function getAlert(db: Db, scope: Scope, id: string): Promise<Alert> {
  return alertOrThrow(
    await alertsIn(db, ofOne(scope)).select(columns).where('id', '=', id).executeTakeFirst(),
  )
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockAlert(db: Db, scope: Scope, id: string): Promise<Alert> {
  const query = alertsIn(db, ofOne(scope)).select(columns).where('id', '=', id)
  return alertOrThrow(await forUpdate(query).executeTakeFirst())
}

function alertOrThrow(row: PublicRow | undefined): Alert {
  if (!row) throw new Problem('not_found', 'Alert not found')
  return toAlert(row)
}

export async function insertAlert(db: Db, alert: Alert): Promise<void> {
  const { title, message } = alert
  const keys = { title_key: fold(title), message_key: message === null ? null : fold(message) }
  await db
    .insertInto('alerts')
    .values({ ...alertRows.write(alert), ...keys })
    .execute()
}

/** Saves the fields that change after an alert was raised. */
export async function changeAlert(db: Db, scope: Scope, alert: Alert): Promise<void> {
  const { id, orgId, deviceId, ruleId, severity, title, message, context, ...state } = alert
  await db
    .updateTable('alerts')
    .set(alertRows.write(state))
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'alerts.org_id'))
    .execute()
}
