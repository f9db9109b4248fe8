import type { Index } from '../src/storage/columns.ts'

/** The totals of a page of applies are read from this index alone: the rows beside it hold whole values. */
export const indexes: readonly Index[] = [
  {
    name: 'config_changes_totals',
    table: 'config_changes',
    columns: ['apply_id', 'section', 'action', 'org_id'],
  },
]
