import { sql } from 'kysely'
import { Problem } from '../../core/errors.ts'
import { advisoryLocks } from '../advisory-locks.ts'
import type { Storage } from '../db.ts'
import { hasTable } from '../migration-ledger.ts'
import { type DatabaseMove, describeMove, moveName, readMove } from './moved.ts'

/** Taken for the last part of a copy. */
export const copyLockKey = advisoryLocks.copy

/** Why nothing may be written: the last part of a copy is under way, or the database was moved. */
export type WriteBlock = { kind: 'maintenance' } | ({ kind: 'moved' } & DatabaseMove)

type Place = { storage: Pick<Storage, 'dialect' | 'read'>; dataDir: string }

/** What the database itself says, which every process of the service sees. */
async function closureOf({ storage, dataDir }: Place): Promise<WriteBlock | undefined> {
  const { isMoved, isBeingClosed } = await (storage.dialect === 'sqlite'
    ? inSqlite(storage, dataDir)
    : inPostgres(storage))
  const move = isMoved ? await readMove(storage) : undefined
  if (move) return { kind: 'moved', ...move }
  return isBeingClosed ? { kind: 'maintenance' } : undefined
}

async function inSqlite(storage: Place['storage'], dataDir: string) {
  const { isLockedForCopy } = await import('../sqlite/copy-lock.ts')
  return { isMoved: await hasTable(storage, moveName), isBeingClosed: isLockedForCopy(dataDir) }
}

/** The lock is shared with the other services for this one statement; a copy waits for it. */
async function inPostgres({ read }: Place['storage']) {
  const { rows } = await sql<{ free: number; moved: number }>`
    select case when pg_try_advisory_xact_lock_shared(${sql.lit(copyLockKey[0])}, ${sql.lit(copyLockKey[1])})
      then 1 else 0 end as free, case when to_regclass(${moveName}) is null then 0 else 1 end as moved`.execute(
    read,
  )
  return { isMoved: rows[0]!.moved === 1, isBeingClosed: rows[0]!.free === 0 }
}

export const describeClosure = (closure: WriteBlock): string =>
  closure.kind === 'maintenance'
    ? 'The service is in maintenance for a moment: it answers reads, and no writes'
    : `${describeMove(closure)}: this one answers reads, and no writes`

/** Milliseconds between two looks. */
export const gatePollMs = 500

/** Seconds after which a refused write may be sent again. */
const retryAfter = { maintenance: 5, moved: 60 } as const

/**
 * Refuses writes while the database is closed for them. The locks and triggers of the database refuse them as well; this answers
 * at once, and in plain words.
 */
export class WriteGate {
  readonly #place: Place
  readonly #onChange: (closure: WriteBlock | undefined) => void
  readonly #timer: NodeJS.Timeout
  #closure: WriteBlock | undefined
  #looking: Promise<void> | undefined

  constructor(place: Place, onChange: (closure: WriteBlock | undefined) => void) {
    this.#place = place
    this.#onChange = onChange
    // A database that does not answer is reported by those who need it.
    this.#timer = setInterval(() => void this.look().catch(() => {}), gatePollMs).unref()
  }

  get closure(): WriteBlock | undefined {
    return this.#closure
  }

  /** @throws maintenance */
  check(): void {
    const closure = this.#closure
    if (closure === undefined) return
    throw new Problem('maintenance', describeClosure(closure), { retryAfter: retryAfter[closure.kind] })
  }

  look(): Promise<void> {
    this.#looking ??= closureOf(this.#place)
      .then((closure) => {
        const isChange = closure?.kind !== this.#closure?.kind
        this.#closure = closure
        if (isChange) this.#onChange(closure)
      })
      .finally(() => {
        this.#looking = undefined
      })
    return this.#looking
  }

  close(): void {
    clearInterval(this.#timer)
  }
}

/** The storage with the gate before its writes. */
export const withWriteGate = (storage: Storage, gate: WriteGate): Storage => ({
  ...storage,
  async write(work, options) {
    gate.check()
    try {
      return await storage.write(work, options)
    } catch (error) {
      // A lock or trigger of the database was first to refuse it.
      if (!(error instanceof Problem)) {
        // Without a newer look the closure known so far decides.
        await gate.look().catch(() => {})
        gate.check()
      }
      throw error
    }
  },
})
