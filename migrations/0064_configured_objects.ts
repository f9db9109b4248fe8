import type { Index } from '../src/storage/columns.ts'

const actions = [
  ...['organization.create', 'organization.update', 'organization.delete'],
  ...['site.create', 'site.update', 'site.delete'],
  ...['role.create', 'role.clone', 'role.update', 'role.delete'],
  ...['filter.create', 'filter.update', 'filter.delete'],
  ...['device_group.create', 'device_group.update', 'device_group.delete'],
  ...['script.create', 'script.update', 'script.delete'],
  ...['user.invite', 'user.role.assign', 'user.access.update', 'user.remove'],
  ...['webhook.create', 'webhook.update', 'webhook.delete'],
  ...['webhook.retry_policy.update', 'webhook.secret.rotate'],
  ...['trust.policy.create', 'trust.policy.update', 'trust.policy.delete'],
]

/** Who changed an object that files describe is found by its id. Other entries do not pay for this index. */
export const indexes: readonly Index[] = [
  {
    name: 'audit_logs_configured',
    table: 'audit_logs',
    columns: ['chain', 'resource_id', 'seq'],
    where: `action in (${actions.map((action) => `'${action}'`).join(', ')})`,
  },
]
