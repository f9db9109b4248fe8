import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * What agents are told: commands, versions, rollouts. A heartbeat reads the row of its device; what is rare is in
 * tables beside it, which stay empty for most devices.
 */
export async function up({ db, text, integer, bigint }: Schema): Promise<void> {
  const onDevice = {
    watchdog_token_hash: text,
    token_issued_at: text,
    watchdog_seen_at: text,
    watchdog_version: text,
    main_silent_since: text,
    auto_update_acknowledged: integer,
    update_version: text,
    update_state: text,
    update_since: text,
    update_reason: text,
    possible_replacement_of: text,
  }
  for (const [name, type] of Object.entries(onDevice)) {
    await db.schema.alterTable('devices').addColumn(name, type).execute()
  }
  await db.schema
    .alterTable('devices')
    .addColumn('auto_update', integer, (c) => c.notNull().defaultTo(1))
    .execute()

  await db.schema
    .createTable('agent_rotations')
    .addColumn('device_id', text, (c) => c.primaryKey().references('devices.id').onDelete('cascade'))
    .addColumn('pending_token_hash', text)
    .addColumn('pending_watchdog_hash', text)
    .addColumn('pending_until', text)
    .addColumn('previous_token_hash', text)
    .addColumn('previous_watchdog_hash', text)
    .addColumn('previous_until', text)
    .execute()

  await db.schema
    .createTable('agent_commands')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addColumn('type', text, (c) => c.notNull())
    .addColumn('payload', text, (c) => c.notNull())
    .addColumn('target_role', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('sent_count', integer, (c) => c.notNull())
    .addColumn('created_by', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .addColumn('sent_at', text)
    .addColumn('completed_at', text)
    .addColumn('result', text)
    .execute()
  await db.schema
    .createIndex('agent_commands_device')
    .on('agent_commands')
    .columns(['device_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('agent_commands_pending')
    .on('agent_commands')
    .columns(['device_id', 'target_role', 'created_at', 'id'])
    .where(sql.ref('status'), '=', sql.lit('pending'))
    .execute()
  await db.schema
    .createIndex('agent_commands_open')
    .on('agent_commands')
    .columns(['status', 'sent_at', 'expires_at'])
    .where(sql.ref('completed_at'), 'is', null)
    .execute()
  await db.schema
    .createIndex('agent_commands_ended')
    .on('agent_commands')
    .column('completed_at')
    .where(sql.ref('completed_at'), 'is not', null)
    .execute()

  await db.schema
    .createTable('agent_releases')
    .addColumn('version', text, (c) => c.primaryKey())
    .addColumn('tag', text, (c) => c.notNull())
    .addColumn('prerelease', integer, (c) => c.notNull())
    .addColumn('notes', text)
    .addColumn('min_from', text)
    .addColumn('manifest', text, (c) => c.notNull())
    .addColumn('manifest_signature', text, (c) => c.notNull())
    .addColumn('signing_key_id', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createTable('agent_builds')
    .addColumn('version', text, (c) => c.notNull().references('agent_releases.version').onDelete('cascade'))
    .addColumn('component', text, (c) => c.notNull())
    .addColumn('platform', text, (c) => c.notNull())
    .addColumn('architecture', text, (c) => c.notNull())
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('url', text, (c) => c.notNull())
    .addColumn('checksum', text, (c) => c.notNull())
    .addColumn('size', bigint, (c) => c.notNull())
    .addColumn('promoted_at', text)
    .addPrimaryKeyConstraint('agent_builds_pk', ['version', 'component', 'platform', 'architecture'])
    .execute()
  await db.schema
    .createIndex('agent_builds_promoted')
    .unique()
    .on('agent_builds')
    .columns(['component', 'platform', 'architecture'])
    .where(sql.ref('promoted_at'), 'is not', null)
    .execute()

  await db.schema
    .createTable('agent_rollouts')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('version', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('waves', text, (c) => c.notNull())
    .addColumn('wave', integer, (c) => c.notNull())
    .addColumn('wave_began_at', text)
    .addColumn('gate_minutes', integer, (c) => c.notNull())
    .addColumn('soak_minutes', integer, (c) => c.notNull())
    .addColumn('max_failure_percent', integer, (c) => c.notNull())
    .addColumn('accepted_failures', integer, (c) => c.notNull())
    .addColumn('halt_reason', text)
    .addColumn('claimed_by', text)
    .addColumn('claimed_until', text)
    .addColumn('created_by', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .addColumn('ended_at', text)
    .addColumn('is_current', integer, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('agent_rollouts_current')
    .unique()
    .on('agent_rollouts')
    .column('is_current')
    .where(sql.ref('is_current'), '=', sql.lit(1))
    .execute()
  await db.schema
    .createIndex('agent_rollouts_list')
    .on('agent_rollouts')
    .columns(['created_at', 'id'])
    .execute()

  await db.schema
    .createTable('agent_rollout_devices')
    .addColumn('rollout_id', text, (c) => c.notNull().references('agent_rollouts.id').onDelete('cascade'))
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addColumn('org_id', text, (c) => c.notNull())
    .addColumn('wave', integer, (c) => c.notNull())
    .addColumn('state', text, (c) => c.notNull())
    .addColumn('from_version', text, (c) => c.notNull())
    .addColumn('is_held', integer, (c) => c.notNull())
    .addColumn('offered_at', text)
    .addColumn('settled_at', text)
    .addColumn('reason', text)
    .addPrimaryKeyConstraint('agent_rollout_devices_pk', ['rollout_id', 'device_id'])
    .execute()
  await db.schema
    .createIndex('agent_rollout_devices_wave')
    .on('agent_rollout_devices')
    .columns(['rollout_id', 'wave', 'state', 'device_id'])
    .execute()
  await db.schema
    .createIndex('agent_rollout_devices_state')
    .on('agent_rollout_devices')
    .columns(['rollout_id', 'state', 'settled_at'])
    .execute()
  await db.schema
    .createIndex('agent_rollout_devices_device')
    .on('agent_rollout_devices')
    .column('device_id')
    .execute()
}
