import type { Instant } from '../../core/time.ts'
import type { NewSavedFilter, SavedFilter } from '../contract.ts'

export function makeFilter(
  { name, description, conditions }: NewSavedFilter,
  made: { id: string; orgId: string; by: string; now: Instant },
): SavedFilter {
  const { id, orgId, by, now } = made
  const about = { name, description: description ?? null, conditions }
  return { id, orgId, ...about, createdBy: by, createdAt: now, updatedAt: now }
}

/** The fields that differ. */
export function changedFields(before: SavedFilter, after: SavedFilter): string[] {
  const fields = ['name', 'description', 'conditions'] as const
  return fields.filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]))
}
