import type { Index } from '../src/storage/columns.ts'

const actions = [
  ...['partner.create', 'partner.update', 'partner.settings.update'],
  ...['organization.create', 'organization.update', 'organization.delete', 'audit.retention.update'],
  ...['site.create', 'site.update', 'site.delete'],
  ...['role.create', 'role.clone', 'role.update', 'role.delete'],
  ...['filter.create', 'filter.update', 'filter.delete'],
  ...['device_group.create', 'device_group.update', 'device_group.delete'],
  ...['script.create', 'script.update', 'script.delete'],
  ...['user.invite', 'user.role.assign', 'user.access.update', 'user.remove'],
  ...['webhook.create', 'webhook.update', 'webhook.delete'],
  ...['webhook.retry_policy.update', 'webhook.secret.rotate', 'webhook.fail'],
  ...['trust.policy.create', 'trust.policy.update', 'trust.policy.delete'],
  ...['sso.provider.create', 'sso.provider.update', 'sso.provider.delete', 'sso.provider.status.update'],
  ...['api_key.create', 'api_key.update', 'api_key.rotate', 'api_key.revoke'],
  ...['enrollment_key.create', 'enrollment_key.update', 'enrollment_key.rotate', 'enrollment_key.delete'],
]

/** In place of audit_logs_configured_partners, which the version before uses: the service itself fails webhooks. */
export const indexes: readonly Index[] = [
  {
    name: 'audit_logs_configured_failures',
    table: 'audit_logs',
    columns: ['chain', 'resource_id', 'seq'],
    where: `action in (${actions.map((action) => `'${action}'`).join(', ')})`,
  },
]
