/** The count of a key; 0 for one that is not counted. */
export const countOf = (counts: ReadonlyMap<string, number>, key: string): number => counts.get(key) ?? 0

/** Adds `change` to the count of a key. The map holds only keys whose count is not 0, so that it does not grow. */
export function addCount(counts: Map<string, number>, key: string, change: number): void {
  const count = countOf(counts, key) + change
  if (count === 0) counts.delete(key)
  else counts.set(key, count)
}
