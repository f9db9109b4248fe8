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

/** Did Postgres give up compiling a pattern? The few that ask for so much are refused as too complex. */
export function isPatternTooComplex(error: unknown): boolean {
  return databaseError(error).code === '2201B'
}

const outages = new Set([
  // Postgres: starting, stopping, full, or the database itself is gone.
  ...['57P01', '57P02', '57P03', '53300', '3D000'],
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['SQLITE_BUSY', 'SQLITE_FULL'],
])

/** Could the database not be used, through no fault of the statement? The same may work later. */
export function isOutage(error: unknown): boolean {
  const { code = '', message = '' } = databaseError(error)
  // The driver's own failures have no code.
  const driver = /^Connection terminated|^timeout exceeded when trying to connect|not queryable$/
  return outages.has(code) || code.startsWith('08') || code.startsWith('SQLITE_IOERR') || driver.test(message)
}

function databaseError(error: unknown): DatabaseError {
  return typeof error === 'object' && error !== null ? error : {}
}
