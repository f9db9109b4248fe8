import type { AnyDb, Schema } from '../src/storage/columns.ts'

/**
 * Devices as people manage them: tags, custom fields, maintenance and groups; saved filters; scripts and
 * alerts. Hardware and the latest metrics move into the device's own row, so that a filter over a fleet
 * reads one row per device. Columns that end in `_key` hold folded text (src/core/fold.ts), for
 * comparisons that do not mind letter case.
 */
export async function up({ db, text, integer, bigint, real, fold }: Schema): Promise<void> {
  const columns = {
    hostname_key: text,
    display_name_key: text,
    maintenance_until: text,
    quarantined_at: text,
    quarantined_reason: text,
    watchdog_status: text,
    pending_patches: integer,
    metrics_at: text,
    cpu_percent: real,
    ram_percent: real,
    ram_used_mb: real,
    disk_percent: real,
    disk_used_gb: real,
    process_count: integer,
    cpu_cores: integer,
    cpu_threads: integer,
    ram_total_mb: bigint,
    disk_total_gb: real,
    manufacturer: text,
    model: text,
    serial_number: text,
    cpu_model: text,
    gpu_model: text,
    motherboard_manufacturer: text,
    motherboard_model: text,
    bios_version: text,
  }
  for (const [name, type] of Object.entries(columns)) {
    await db.schema.alterTable('devices').addColumn(name, type).execute()
  }
  await db.schema
    .alterTable('devices')
    .addColumn('device_role_source', text, (c) => c.notNull().defaultTo('auto'))
    .execute()
  const hardware = ['manufacturer', 'model', 'serial_number', 'cpu_model', 'cpu_cores', 'cpu_threads'].concat(
    ['ram_total_mb', 'disk_total_gb', 'gpu_model', 'motherboard_manufacturer', 'motherboard_model'],
    ['bios_version'],
  )
  await moveIntoDevices(db, 'device_hardware', Object.fromEntries(hardware.map((name) => [name, name])))
  const metrics = [
    'cpu_percent',
    'ram_percent',
    'ram_used_mb',
    'disk_percent',
    'disk_used_gb',
    'process_count',
  ]
  await moveIntoDevices(db, 'device_metrics', {
    metrics_at: 'recorded_at',
    ...Object.fromEntries(metrics.map((name) => [name, name])),
  })
  await foldNames(db, fold)

  await db.schema.alterTable('device_interfaces').addColumn('public_ip', text).execute()
  await db.schema.alterTable('device_disks').addColumn('health', text).execute()
  for (const name of ['name_key', 'install_date', 'install_location']) {
    await db.schema.alterTable('device_software').addColumn(name, text).execute()
  }
  await foldSoftware(db, fold)
  await db.schema
    .createIndex('device_software_name')
    .on('device_software')
    .columns(['name_key', 'device_id'])
    .execute()

  await db.schema
    .createTable('device_tags')
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addColumn('tag', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('device_tags_pk', ['device_id', 'tag'])
    .execute()
  await db.schema.createIndex('device_tags_tag').on('device_tags').columns(['tag', 'device_id']).execute()

  await db.schema
    .createTable('device_custom_fields')
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addColumn('key', text, (c) => c.notNull())
    .addColumn('value', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('device_custom_fields_pk', ['device_id', 'key'])
    .execute()
  await db.schema
    .createIndex('device_custom_fields_value')
    .on('device_custom_fields')
    .columns(['key', 'value', 'device_id'])
    .execute()

  await db.schema
    .createTable('saved_filters')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('description', text)
    .addColumn('conditions', text, (c) => c.notNull())
    .addColumn('created_by', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('saved_filters_org')
    .on('saved_filters')
    .columns(['org_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('saved_filters_created')
    .on('saved_filters')
    .columns(['created_at', 'id'])
    .execute()

  await db.schema
    .alterTable('device_groups')
    .addColumn('type', text, (c) => c.notNull().defaultTo('static'))
    .execute()
  await db.schema
    .alterTable('device_groups')
    .addColumn('filter_id', text, (c) => c.references('saved_filters.id'))
    .execute()
  await db.schema
    .alterTable('device_groups')
    .addColumn('parent_id', text, (c) => c.references('device_groups.id'))
    .execute()
  await db.schema.alterTable('device_groups').addColumn('evaluated_at', text).execute()
  await db.schema.createIndex('device_groups_filter').on('device_groups').column('filter_id').execute()
  await db.schema.createIndex('device_groups_parent').on('device_groups').column('parent_id').execute()

  await db.schema
    .alterTable('device_group_devices')
    .addColumn('is_pinned', integer, (c) => c.notNull().defaultTo(0))
    .execute()
  await db.schema
    .alterTable('device_group_devices')
    .addColumn('added_by', text, (c) => c.notNull().defaultTo('manual'))
    .execute()
  await db.schema
    .alterTable('device_group_devices')
    .addColumn('added_at', text, (c) => c.notNull().defaultTo('1970-01-01T00:00:00.000Z'))
    .execute()
  await db.schema
    .createTable('device_group_changes')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('group_id', text, (c) => c.notNull().references('device_groups.id').onDelete('cascade'))
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addColumn('action', text, (c) => c.notNull())
    .addColumn('reason', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('device_group_changes_group')
    .on('device_group_changes')
    .columns(['group_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('device_group_changes_device')
    .on('device_group_changes')
    .column('device_id')
    .execute()

  await db.schema
    .createTable('scripts')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.references('organizations.id'))
    .addColumn('partner_id', text, (c) => c.references('partners.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('name_key', text, (c) => c.notNull())
    .addColumn('description', text)
    .addColumn('description_key', text)
    .addColumn('category', text)
    .addColumn('os_types', text, (c) => c.notNull())
    .addColumn('language', text, (c) => c.notNull())
    .addColumn('content', text, (c) => c.notNull())
    .addColumn('parameters', text)
    .addColumn('timeout_seconds', integer, (c) => c.notNull())
    .addColumn('run_as', text, (c) => c.notNull())
    .addColumn('is_system', integer, (c) => c.notNull())
    .addColumn('version', integer, (c) => c.notNull())
    .addColumn('created_by', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .addColumn('deleted_at', text)
    .execute()
  await db.schema.createIndex('scripts_org').on('scripts').columns(['org_id', 'name', 'id']).execute()
  await db.schema.createIndex('scripts_partner').on('scripts').columns(['partner_id', 'name', 'id']).execute()
  await db.schema.createIndex('scripts_name').on('scripts').columns(['name', 'id']).execute()

  await db.schema
    .createTable('alerts')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('device_id', text, (c) => c.references('devices.id').onDelete('cascade'))
    .addColumn('rule_id', text)
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('severity', text, (c) => c.notNull())
    .addColumn('title', text, (c) => c.notNull())
    .addColumn('title_key', text, (c) => c.notNull())
    .addColumn('message', text)
    .addColumn('message_key', text)
    .addColumn('context', text)
    .addColumn('triggered_at', text, (c) => c.notNull())
    .addColumn('acknowledged_at', text)
    .addColumn('acknowledged_by', text)
    .addColumn('escalated_at', text)
    .addColumn('escalated_by', text)
    .addColumn('resolved_at', text)
    .addColumn('resolved_by', text)
    .addColumn('resolution_note', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('alerts_org').on('alerts').columns(['org_id', 'triggered_at', 'id']).execute()
  await db.schema.createIndex('alerts_time').on('alerts').columns(['triggered_at', 'id']).execute()
  await db.schema
    .createIndex('alerts_device')
    .on('alerts')
    .columns(['device_id', 'severity', 'status'])
    .execute()
}

/** Copies columns of a table with one row per device into the device's row, and drops the table. */
async function moveIntoDevices(db: AnyDb, table: string, columns: Record<string, string>): Promise<void> {
  await db
    .updateTable('devices')
    .from(table)
    .set((eb) =>
      Object.fromEntries(Object.entries(columns).map(([to, from]) => [to, eb.ref(`${table}.${from}`)])),
    )
    .whereRef(`${table}.device_id`, '=', 'devices.id')
    .execute()
  await db.schema.dropTable(table).execute()
}

/** Page by page: a migration must not hold a fleet in memory. */
async function foldNames(db: AnyDb, fold: Schema['fold']): Promise<void> {
  for (let after = ''; ; ) {
    const rows = await db
      .selectFrom('devices')
      .select(['id', 'hostname', 'display_name'])
      .where('id', '>', after)
      .orderBy('id')
      .limit(500)
      .execute()
    for (const { id, hostname, display_name: name } of rows) {
      const keys = { hostname_key: fold(hostname), display_name_key: name === null ? null : fold(name) }
      await db.updateTable('devices').set(keys).where('id', '=', id).execute()
    }
    if (rows.length < 500) return
    after = rows.at(-1)!.id
  }
}

async function foldSoftware(db: AnyDb, fold: Schema['fold']): Promise<void> {
  const names = await db.selectFrom('device_software').select('name').distinct().execute()
  for (const { name } of names) {
    await db
      .updateTable('device_software')
      .set({ name_key: fold(name) })
      .where('name', '=', name)
      .execute()
  }
}
