type DatabaseError = {
  code?: string
  message?: string
  /** Postgres only. */
  severity?: string
  table?: string
  constraint?: string
  detail?: string
}

/**
 * Returns what was not unique, the same on both databases: `organizations.partner_id, organizations.slug`, or the
 * name of the index if it is over an expression; undefined for any other error.
 */
export function violatedUniqueKey(error: unknown): string | undefined {
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
    // SQLite enforces "on delete restrict" with a trigger.
    (code === 'SQLITE_CONSTRAINT_TRIGGER' && message === 'FOREIGN KEY constraint failed') ||
    code === '23503' ||
    code === '23001'
  )
}

/** Whether Postgres gave up compiling a pattern. The few patterns that need so much are refused as too complex. */
export function isPatternTooComplex(error: unknown): boolean {
  return databaseError(error).code === '2201B'
}

/** Why the database cannot be used, or not for this statement. */
export type DatabaseFailure =
  /** It may answer soon: it is not reachable, starting, stopping, or out of connections. */
  | 'unreachable'
  /** It no longer accepts the credentials: a changed password, or a role that may not sign in. */
  | 'denying access'
  /** A statement took longer than one may. */
  | 'too slow'
  /** It accepts no changes: a replica, or set to read only. */
  | 'read-only'
  /** Its files are no longer at the path where they were opened. */
  | 'moved'
  /** Its disk, memory or another of its limits is used up. */
  | 'full'
  /** Its disk fails to read or write. */
  | 'failing disk'
  /** Its stored data is corrupt. */
  | 'damaged'
  /** It takes no changes while it is copied, or because it was moved (copy/write-gate.ts). */
  | 'in maintenance'

const away = new Set([
  // Postgres: starting, stopping, all connections taken, or the database itself is gone.
  '57P01',
  '57P02',
  '57P03',
  '57P04',
  '57P05',
  '53300',
  '3D000',
  '25P03',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'SQLITE_BUSY',
])

/** A statement, transaction or lock wait ended by its time limit, or SQLite interrupted. */
const slow = new Set(['57014', '25P04', '55P03', 'SQLITE_INTERRUPT'])

/** The driver's own failures have no code. */
const driver =
  /^Connection terminated|^timeout exceeded when trying to connect|^timeout expired$|^Query read timeout|not queryable$/

/**
 * The service keeps signed checkpoints and mails in files: an error of their disk counts as one of the database's
 * disk.
 */
const fileErrors: Readonly<Record<string, DatabaseFailure>> = {
  ENOSPC: 'full',
  EDQUOT: 'full',
  EROFS: 'read-only',
  EIO: 'failing disk',
  EMFILE: 'full',
  ENFILE: 'full',
}

/** undefined: the database is fine and the statement is at fault (PostgreSQL, appendix A; SQLite, result codes). */
export function classifyDatabaseError(error: unknown): DatabaseFailure | undefined {
  const { code = '', message = '', severity } = databaseError(error)
  if (away.has(code) || code.startsWith('08') || driver.test(message)) return 'unreachable'
  if (slow.has(code)) return 'too slow'
  if (code === 'maintenance') return 'in maintenance'
  // 42501 is left out: it may be about a single row.
  if (code.startsWith('28')) return 'denying access'
  if (code === 'SQLITE_READONLY_DBMOVED') return 'moved'
  if (code === '25006' || code.startsWith('SQLITE_READONLY')) return 'read-only'
  if (code === 'XX001' || code === 'XX002' || code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB')
    return 'damaged'
  if (/^53...$/.test(code) || code === 'SQLITE_FULL' || code === 'SQLITE_NOMEM') return 'full'
  if (/^58...$/.test(code) || code.startsWith('SQLITE_IOERR')) return 'failing disk'
  // A file that does not open now, and every error that ends a connection or refuses a new one.
  if (code.startsWith('SQLITE_CANTOPEN') || severity === 'FATAL') return 'unreachable'
  return fileErrors[code]
}

const diskFull = new Set(['53100', 'SQLITE_FULL', 'ENOSPC', 'EDQUOT'])

/** Whether a disk has no room left, also where that is the cause of another failure. */
export function isDiskFull(error: unknown): boolean {
  const seen = new Set<unknown>()
  for (let one = error; one instanceof Error && !seen.has(one); one = one.cause) {
    if (diskFull.has(databaseError(one).code ?? '')) return true
    seen.add(one)
  }
  return false
}

/** Whether another transaction kept a row locked for longer than a statement waits. Of Postgres only. */
export const isLockTimeout = (error: unknown): boolean => databaseError(error).code === '55P03'

const transient = new Set(['40001', '40P01'])

/** Serialization failure and deadlock: the transaction changed nothing, and a retry of it is likely to succeed. */
export const isTransient = (error: unknown): boolean => transient.has(databaseError(error).code ?? '')

/** Whether the database could not be used, through no fault of the statement: the same statement may work later. */
export function isOutage(error: unknown): boolean {
  if (error instanceof LeaseLostError) return true
  const failure = classifyDatabaseError(error)
  return failure !== undefined && failure !== 'damaged'
}

/** Another process does this work now (leases.ts): like an outage it is no fault of what was to be written. */
export class LeaseLostError extends Error {
  constructor(name: string) {
    super(`Another process has the lease "${name}"`)
    this.name = 'LeaseLostError'
  }
}

function databaseError(error: unknown): DatabaseError {
  return typeof error === 'object' && error !== null ? error : {}
}
