type DatabaseError = {
  code?: string
  message?: string
  /** Postgres only. */
  table?: string
  constraint?: string
  detail?: string
}

/**
 * What was not unique, the same on both databases: `organizations.partner_id, organizations.slug`, or the
 * name of the index when it is over an expression. Undefined for any other error.
 */
export function isUniqueViolation(error: unknown): string | undefined {
  const { code, message = '', table, constraint, detail = '' } = databaseError(error)
  if (code === 'SQLITE_CONSTRAINT_UNIQUE' || code === 'SQLITE_CONSTRAINT_PRIMARYKEY') {
    return /^UNIQUE constraint failed: (?:index ')?(.*?)'?$/.exec(message)?.[1] ?? message
  }
  if (code !== '23505') return undefined
  const columns = /^Key \(([a-z0-9_]+(?:, [a-z0-9_]+)*)\)=/.exec(detail)?.[1]
  return columns
    ? columns
        .split(', ')
        .map((column) => `${table}.${column}`)
        .join(', ')
    : (constraint ?? message)
}

export function isForeignKeyViolation(error: unknown): boolean {
  const { code, message } = databaseError(error)
  return (
    code === 'SQLITE_CONSTRAINT_FOREIGNKEY' ||
    // SQLite carries out "on delete restrict" as a trigger.
    (code === 'SQLITE_CONSTRAINT_TRIGGER' && message === 'FOREIGN KEY constraint failed') ||
    code === '23503' ||
    code === '23001'
  )
}

function databaseError(error: unknown): DatabaseError {
  return typeof error === 'object' && error !== null ? error : {}
}
