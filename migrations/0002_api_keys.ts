import type { Schema } from '../src/storage/columns.ts'

/** API keys, their use in the last hour, and the way back from a device to its enrollment key. */
export async function up({ db, text, integer, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('api_keys')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('key_hash', text, (c) => c.notNull().unique())
    .addColumn('key_prefix', text, (c) => c.notNull())
    .addColumn('previous_hash', text, (c) => c.unique())
    .addColumn('previous_until', text)
    .addColumn('scopes', text, (c) => c.notNull())
    .addColumn('expires_at', text)
    .addColumn('rate_limit', integer, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('created_by', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('last_used_at', text)
    .addColumn('usage_count', bigint, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('api_keys_org').on('api_keys').columns(['org_id', 'created_at', 'id']).execute()
  await db.schema.createIndex('api_keys_created').on('api_keys').columns(['created_at', 'id']).execute()

  await db.schema
    .createTable('api_key_buckets')
    .addColumn('key_id', text, (c) => c.notNull().references('api_keys.id').onDelete('cascade'))
    .addColumn('bucket', bigint, (c) => c.notNull())
    .addColumn('count', integer, (c) => c.notNull())
    .addPrimaryKeyConstraint('api_key_buckets_pk', ['key_id', 'bucket'])
    .execute()
  await db.schema.createIndex('api_key_buckets_age').on('api_key_buckets').column('bucket').execute()

  // The list of a key's devices needs their order as well.
  await db.schema.dropIndex('devices_enrollment_key').execute()
  await db.schema
    .createIndex('devices_enrolled')
    .on('devices')
    .columns(['enrollment_key_id', 'enrolled_at', 'id'])
    .execute()
}
