import type { Selectable } from 'kysely'
import type { Cipher } from '../core/cipher.ts'
import { Problem } from '../core/errors.ts'
import type { IdPage, Page, PageQuery } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { textsOf } from '../storage/query/expressions.ts'
import { forNoKeyUpdate } from '../storage/query/locks.ts'
import { readById, readPage } from '../storage/query/pages.ts'
import { inScope } from '../storage/query/scope.ts'
import type { WebhookCountRow, WebhookRow } from '../storage/schema/tables.ts'
import { hiddenValue, type RetryPolicy, type Webhook } from './contract.ts'
import {
  type EncryptedWebhookColumn,
  type Header,
  redactWebhook,
  toStoredStatus,
  toWireStatus,
  type WebhookRecord,
} from './rules.ts'

/** All columns of a record but its events, which have a table of their own. */
export const webhookColumns = [
  'webhooks.id',
  'webhooks.org_id',
  'webhooks.name',
  'webhooks.url',
  'webhooks.secret',
  'webhooks.previous_secret',
  'webhooks.previous_until',
  'webhooks.headers',
  'webhooks.status',
  'webhooks.status_reason',
  'webhooks.retry_policy',
  'webhooks.created_by',
  'webhooks.created_at',
  'webhooks.updated_at',
] as const

const eventsOf = textsOf({ table: 'webhook_events', by: 'webhook_id', of: 'webhooks.id' }, 'event')

type StoredWebhook = Omit<Selectable<WebhookRow>, 'deleted_at'> & { events: string }
type Counts = Omit<WebhookCountRow, 'webhook_id'>

const encryptionContextOf = (column: EncryptedWebhookColumn, id: string) =>
  `webhooks.${column}.${id}` as const

/** Decrypts the encrypted columns of a row. */
export function decryptWebhook(cipher: Cipher, row: StoredWebhook): WebhookRecord {
  const unreadable: WebhookRecord['unreadable'] = {}
  const open = (column: EncryptedWebhookColumn) => {
    const encrypted = row[column]
    if (encrypted === null) return null
    const plain = cipher.tryDecrypt(encrypted, encryptionContextOf(column, row.id))
    if (plain === undefined) unreadable[column] = encrypted
    return plain ?? null
  }
  return {
    id: row.id,
    orgId: row.org_id,
    name: row.name,
    url: open('url') ?? hiddenValue,
    events: JSON.parse(row.events) as string[],
    headers: JSON.parse(open('headers') ?? '[]') as Header[],
    status: toWireStatus(row.status),
    statusReason: row.status === 'active' ? null : row.status_reason,
    retryPolicy: row.retry_policy === null ? null : (JSON.parse(row.retry_policy) as RetryPolicy),
    secret: open('secret'),
    previousSecret: open('previous_secret'),
    previousUntil: row.previous_until,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    unreadable,
  }
}

function encrypted(cipher: Cipher, webhook: WebhookRecord): Omit<Selectable<WebhookRow>, 'deleted_at'> {
  const { id } = webhook
  const encrypt = (column: EncryptedWebhookColumn, plain: string) =>
    webhook.unreadable[column] ?? cipher.encrypt(plain, encryptionContextOf(column, id))
  const sealOrNull = (column: EncryptedWebhookColumn, plain: string | null) =>
    plain === null ? (webhook.unreadable[column] ?? null) : encrypt(column, plain)
  return {
    id,
    org_id: webhook.orgId,
    name: webhook.name,
    url: encrypt('url', webhook.url),
    secret: sealOrNull('secret', webhook.secret),
    previous_secret: sealOrNull('previous_secret', webhook.previousSecret),
    previous_until: webhook.previousUntil,
    headers: encrypt('headers', JSON.stringify(webhook.headers)),
    status: toStoredStatus(webhook.status),
    status_reason: webhook.statusReason,
    retry_policy: webhook.retryPolicy === null ? null : JSON.stringify(webhook.retryPolicy),
    created_by: webhook.createdBy,
    created_at: webhook.createdAt,
    updated_at: webhook.updatedAt,
  }
}

/** The webhook in the form of replies. */
export const toWebhook = (webhook: WebhookRecord, counts: Counts): Webhook => ({
  ...redactWebhook(webhook),
  successCount: counts.success_count,
  failureCount: counts.failure_count,
  lastDeliveryAt: counts.last_delivery_at,
  lastSuccessAt: counts.last_success_at,
})

export const noCounts: Counts = {
  success_count: 0,
  failure_count: 0,
  last_delivery_at: null,
  last_success_at: null,
}

/** Without deleted webhooks. */
const webhooksIn = (db: Db, scope: Scope) =>
  db.selectFrom('webhooks').where(inScope(scope, 'webhooks.org_id')).where('webhooks.deleted_at', 'is', null)

const withCounts = (found: ReturnType<typeof webhooksIn>) =>
  found
    .innerJoin('webhook_counts as c', 'c.webhook_id', 'webhooks.id')
    .select(webhookColumns)
    .select(eventsOf.as('events'))
    .select(['c.success_count', 'c.failure_count', 'c.last_delivery_at', 'c.last_success_at'])

/** Newest first. */
export async function listWebhooks(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  query: PageQuery & { orgId?: string | undefined; status?: Webhook['status'] | undefined },
): Promise<Page<Webhook>> {
  const { orgId, status } = query
  const found = webhooksIn(db, scope)
    .$if(orgId !== undefined, (q) => q.where('webhooks.org_id', '=', orgId!))
    .$if(status !== undefined, (q) => q.where('webhooks.status', '=', toStoredStatus(status!)))
  const newestFirst = (q: typeof found) =>
    withCounts(q).orderBy('webhooks.created_at', 'desc').orderBy('webhooks.id', 'desc')
  return readPage(found, query, newestFirst, (row) => toWebhook(decryptWebhook(cipher, row), row))
}

export const countWebhooksIn = (db: Db, scope: Scope): Promise<number> => countRowsOf(webhooksIn(db, scope))

/** With their secrets, for who compares them, by id. */
export async function listWebhookRecords(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  page: IdPage,
): Promise<WebhookRecord[]> {
  const select = (q: ReturnType<typeof webhooksIn>) => q.select(webhookColumns).select(eventsOf.as('events'))
  const rows = await readById(webhooksIn(db, scope), 'webhooks.id', page, select)
  return rows.map((row) => decryptWebhook(cipher, row))
}

/** How many webhooks there are in each state, and how many attempts were made for them. */
export async function countWebhooks(
  db: Db,
  scope: Scope,
): Promise<{ status: Webhook['status']; webhooks: number; succeeded: number; failed: number }[]> {
  const rows = await webhooksIn(db, scope)
    .innerJoin('webhook_counts as c', 'c.webhook_id', 'webhooks.id')
    .select(({ fn }) => [
      'webhooks.status',
      fn.countAll<number>().as('webhooks'),
      fn.sum<number | string>('c.success_count').as('succeeded'),
      fn.sum<number | string>('c.failure_count').as('failed'),
    ])
    .groupBy('webhooks.status')
    .execute()
  return rows.map(({ status, webhooks, succeeded, failed }) => ({
    status: toWireStatus(status),
    webhooks,
    succeeded: Number(succeeded),
    failed: Number(failed),
  }))
}

/** @throws not_found, also for a webhook outside the scope */
export async function getWebhook(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  id: string,
): Promise<{ webhook: WebhookRecord; counts: Counts }> {
  const row = await withCounts(webhooksIn(db, ofOne(scope)))
    .where('webhooks.id', '=', id)
    .executeTakeFirst()
  if (!row) throw notFound()
  return { webhook: decryptWebhook(cipher, row), counts: row }
}

/** @throws not_found, also for a webhook outside the scope */
export async function getSummary(
  db: Db,
  scope: Scope,
  id: string,
): Promise<{ id: string; orgId: string; name: string; isActive: boolean }> {
  const row = await webhooksIn(db, ofOne(scope))
    .select(['webhooks.org_id as orgId', 'webhooks.name', 'webhooks.status'])
    .where('webhooks.id', '=', id)
    .executeTakeFirst()
  if (!row) throw notFound()
  const { orgId, name, status } = row
  return { id, orgId, name, isActive: status === toStoredStatus('active') }
}

/** The same, locked until the transaction ends. @throws not_found */
export async function lockWebhook(db: Db, cipher: Cipher, scope: Scope, id: string) {
  // Fan-out locks the queue and then references the webhook: `forUpdate` could deadlock with it.
  await forNoKeyUpdate(
    webhooksIn(db, ofOne(scope)).select('webhooks.id').where('webhooks.id', '=', id),
  ).execute()
  return getWebhook(db, cipher, scope, id)
}

const notFound = () => new Problem('not_found', 'Webhook not found')

export async function insertWebhook(db: Db, cipher: Cipher, webhook: WebhookRecord): Promise<void> {
  await db
    .insertInto('webhooks')
    .values({ ...encrypted(cipher, webhook), deleted_at: null })
    .execute()
  await insertEvents(db, webhook)
  await db
    .insertInto('webhook_queues')
    .values({ webhook_id: webhook.id, org_id: webhook.orgId, due_at: null, holder: null, last_seq: 0 })
    .execute()
  await db
    .insertInto('webhook_counts')
    .values({ webhook_id: webhook.id, ...noCounts })
    .execute()
}

async function insertEvents(db: Db, { id, orgId, events }: WebhookRecord): Promise<void> {
  const rows = events.map((event) => ({ webhook_id: id, event, org_id: orgId }))
  await db.insertInto('webhook_events').values(rows).execute()
}

export async function changeWebhook(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  webhook: WebhookRecord,
): Promise<void> {
  const { id: _, org_id: __, created_at: ___, created_by: ____, ...row } = encrypted(cipher, webhook)
  await db
    .updateTable('webhooks')
    .set(row)
    .where('id', '=', webhook.id)
    .where(inScope(ofOne(scope), 'webhooks.org_id'))
    .execute()
}

/** The caller found the webhook within its scope and locked it. */
export async function replaceEvents(db: Db, webhook: WebhookRecord): Promise<void> {
  await db.deleteFrom('webhook_events').where('webhook_id', '=', webhook.id).execute()
  await insertEvents(db, webhook)
}

/** Marks a webhook as deleted; its deliveries, which may be many, are deleted in the background. */
export async function removeWebhook(db: Db, scope: Scope, id: string, now: Instant): Promise<void> {
  const [{ numUpdatedRows }] = (await db
    .updateTable('webhooks')
    .set({ deleted_at: now })
    .where('id', '=', id)
    .where(inScope(ofOne(scope), 'webhooks.org_id'))
    .execute()) as [{ numUpdatedRows: bigint }]
  if (numUpdatedRows === 0n) return
  await db.deleteFrom('webhook_events').where('webhook_id', '=', id).execute()
  await db.updateTable('webhook_queues').set({ due_at: null }).where('webhook_id', '=', id).execute()
}
