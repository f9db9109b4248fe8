/** A pattern in RE2 syntax as Postgres understands it. */
export function translated(pattern: string): string {
  return pattern
}
