import type { Index } from '../src/storage/columns.ts'

/** What retention deletes is found by its age. */
export const indexes: readonly Index[] = [
  { name: 'alerts_age', table: 'alerts', columns: ['resolved_at'], where: 'resolved_at is not null' },
  { name: 'audit_checkpoints_age', table: 'audit_checkpoints', columns: ['created_at'] },
  {
    name: 'devices_decommissioned',
    table: 'devices',
    columns: ['updated_at'],
    where: `status = 'decommissioned'`,
  },
]
