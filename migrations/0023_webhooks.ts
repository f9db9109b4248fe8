import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Webhooks. What happened is kept in `events` until it was given out to those who asked for it. A webhook's
 * deliveries are its queue: the row in `webhook_queues` says when the next of them is due and which process sends
 * them, and is what changes with each, so that the webhook itself stays as people made it.
 */
export async function up({ db, text, integer, bigint, counter }: Schema): Promise<void> {
  await counter(db.schema.createTable('events'), 'seq')
    .addColumn('id', text, (c) => c.notNull())
    .addColumn('org_id', text, (c) => c.notNull())
    .addColumn('type', text, (c) => c.notNull())
    .addColumn('data', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('given_to', text)
    .execute()

  await db.schema
    .createTable('webhooks')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('url', text, (c) => c.notNull())
    .addColumn('secret', text)
    .addColumn('previous_secret', text)
    .addColumn('previous_until', text)
    .addColumn('headers', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('retry_policy', text)
    .addColumn('created_by', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .addColumn('deleted_at', text)
    .execute()
  await db.schema
    .createIndex('webhooks_org')
    .on('webhooks')
    .columns(['org_id', 'created_at', 'id'])
    .where(sql.ref('deleted_at'), 'is', null)
    .execute()
  await db.schema
    .createIndex('webhooks_deleted')
    .on('webhooks')
    .column('deleted_at')
    .where(sql.ref('deleted_at'), 'is not', null)
    .execute()

  await db.schema
    .createTable('webhook_events')
    .addColumn('webhook_id', text, (c) => c.notNull().references('webhooks.id').onDelete('cascade'))
    .addColumn('event', text, (c) => c.notNull())
    .addColumn('org_id', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('webhook_events_pk', ['webhook_id', 'event'])
    .execute()
  await db.schema
    .createIndex('webhook_events_wanted')
    .on('webhook_events')
    .columns(['org_id', 'event', 'webhook_id'])
    .execute()

  await db.schema
    .createTable('webhook_queues')
    .addColumn('webhook_id', text, (c) => c.primaryKey().references('webhooks.id').onDelete('cascade'))
    .addColumn('org_id', text, (c) => c.notNull())
    .addColumn('due_at', text)
    .addColumn('holder', text)
    .addColumn('last_seq', bigint, (c) => c.notNull())
    .addColumn('success_count', bigint, (c) => c.notNull())
    .addColumn('failure_count', bigint, (c) => c.notNull())
    .addColumn('last_delivery_at', text)
    .addColumn('last_success_at', text)
    .execute()
  await db.schema
    .createIndex('webhook_queues_due')
    .on('webhook_queues')
    .columns(['due_at', 'webhook_id'])
    .where(sql.ref('due_at'), 'is not', null)
    .execute()
  await db.schema
    .createIndex('webhook_queues_held')
    .on('webhook_queues')
    .column('holder')
    .where(sql.ref('holder'), 'is not', null)
    .execute()

  await db.schema
    .createTable('webhook_workers')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('alive_until', text, (c) => c.notNull())
    .execute()

  await db.schema
    .createTable('webhook_deliveries')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('webhook_id', text, (c) => c.notNull().references('webhooks.id').onDelete('cascade'))
    .addColumn('org_id', text, (c) => c.notNull())
    .addColumn('seq', bigint, (c) => c.notNull())
    .addColumn('event', text, (c) => c.notNull())
    .addColumn('event_id', text, (c) => c.notNull())
    .addColumn('event_at', text, (c) => c.notNull())
    .addColumn('payload', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('asked_for', integer, (c) => c.notNull())
    .addColumn('attempt', integer, (c) => c.notNull())
    .addColumn('due_at', text)
    .addColumn('response_status', integer)
    .addColumn('response_body', text)
    .addColumn('response_time_ms', integer)
    .addColumn('error_message', text)
    .addColumn('failure_class', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('delivered_at', text)
    .addColumn('ended_at', text)
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_seq')
    .unique()
    .on('webhook_deliveries')
    .columns(['webhook_id', 'seq'])
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_status')
    .on('webhook_deliveries')
    .columns(['webhook_id', 'status', 'seq'])
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_due')
    .on('webhook_deliveries')
    .columns(['webhook_id', 'due_at', 'seq'])
    .where(sql.ref('due_at'), 'is not', null)
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_failed')
    .on('webhook_deliveries')
    .columns(['org_id', 'created_at', 'id'])
    .where(sql.ref('status'), '=', sql.lit('failed'))
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_kept')
    .on('webhook_deliveries')
    .column('created_at')
    .where(sql.ref('status'), '=', sql.lit('pending'))
    .where(sql.ref('due_at'), 'is', null)
    .execute()
  await db.schema
    .createIndex('webhook_deliveries_ended')
    .on('webhook_deliveries')
    .column('ended_at')
    .where(sql.ref('ended_at'), 'is not', null)
    .execute()
}
