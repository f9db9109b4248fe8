import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { SetupError } from '../../core/errors.ts'
import type { AnyDb, Index } from '../columns.ts'
import { createIndexConcurrently } from '../indexes.ts'
import { type Blocker, describeBlocker, type MigrationWait } from '../migration-wait.ts'
import { blockersOf } from './blockers.ts'

export type LockLimits = {
  /**
   * Milliseconds that a migration waits for a lock at once. Everybody else who needs the table queues behind it, so it is
   * less than a statement of the service waits for a lock.
   */
  sliceMs: number
  /** Milliseconds from the first attempt after which there is no other one. */
  totalMs: number
}

/** Waiting for a lock took too long, or deadlocked with a transaction of the service: nothing was changed. */
const retryable = new Set(['55P03', '40P01'])
const isLockFailure = (error: unknown): boolean => retryable.has((error as { code?: string }).code ?? '')

/** The longest pause between two attempts, in slices. */
const maxPauseSlices = 5

/** The connection that migrates, and another one, which sees what the first waits for. */
type Connections = { db: AnyDb; watcher: AnyDb; limits: LockLimits }

/**
 * Runs a migration in a transaction that gives up its place in the queue of a lock after a moment, pauses, and tries
 * again: an idle transaction that holds a lock delays the migration, and not those who read and write the table.
 */
export function inSlices<T>(
  migration: string,
  on: Connections,
  work: (tx: AnyDb) => Promise<T>,
  onWait: (wait: MigrationWait) => void,
): Promise<T> {
  const attempt = () =>
    on.db.transaction().execute(async (tx) => {
      await sql`set local lock_timeout = ${sql.lit(on.limits.sliceMs)}`.execute(tx)
      return work(tx)
    })
  return untilUnlocked(migration, on, attempt, onWait)
}

/**
 * Builds indexes outside a transaction. Waiting for others delays nobody then, and giving up would lose the work done: so
 * there are no slices.
 */
export async function buildConcurrently(
  migration: string,
  indexes: readonly Index[],
  on: Connections,
  onWait: (wait: MigrationWait) => void,
): Promise<void> {
  const { db, limits } = on
  const { rows } = await sql<{ usual: string }>`select current_setting('lock_timeout') as usual`.execute(db)
  const setTimeLimit = (value: string) => sql`select set_config('lock_timeout', ${value}, false)`.execute(db)
  await setTimeLimit(`${limits.totalMs}ms`)
  try {
    const build = async () => {
      for (const index of indexes) await createIndexConcurrently(db, index)
    }
    await untilUnlocked(migration, on, build, onWait)
  } finally {
    // A lost connection has no settings, and the reason is what matters.
    await setTimeLimit(rows[0]!.usual).catch(() => {})
  }
}

async function untilUnlocked<T>(
  migration: string,
  { db, watcher, limits: { sliceMs, totalMs } }: Connections,
  attempt: () => Promise<T>,
  onWait: (wait: MigrationWait) => void,
): Promise<T> {
  const end = performance.now() + totalMs
  for (let pauseMs = sliceMs / 2; ; pauseMs = Math.min(pauseMs * 2, sliceMs * maxPauseSlices)) {
    const watch = await watchBlockers(db, watcher, sliceMs, (blockers) => onWait({ migration, blockers }))
    try {
      return await attempt()
    } catch (error) {
      if (!isLockFailure(error)) throw error
      if (performance.now() + pauseMs > end) throw gaveUp(migration, totalMs, watch.last(), error)
    } finally {
      await watch.stop()
    }
    await sleep(pauseMs)
  }
}

/** Tells once whom the connection of `db` waits for, when it has waited for nearly a slice. */
async function watchBlockers(
  db: AnyDb,
  watcher: AnyDb,
  sliceMs: number,
  onWait: (blockers: Blocker[]) => void,
) {
  const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(db)
  const { pid } = rows[0]!
  const askMs = sliceMs / 8
  const ended = new AbortController()
  let last: Blocker[] = []
  let seen = 0
  const loop = (async () => {
    while (!ended.signal.aborted) {
      // The end of the migration ends the pause; the next line sees it.
      await sleep(askMs, undefined, { signal: ended.signal }).catch(() => {})
      if (ended.signal.aborted) return
      // What it cannot see it cannot tell; the migration itself goes on.
      const found = await blockersOf(watcher, pid).catch(() => [])
      seen = found.length === 0 ? 0 : seen + 1
      if (found.length > 0) last = found
      if (seen === 5) onWait(found)
    }
  })()
  return {
    last: () => last,
    stop: () => {
      ended.abort()
      return loop
    },
  }
}

function gaveUp(
  migration: string,
  totalMs: number,
  blockers: readonly Blocker[],
  cause: unknown,
): SetupError {
  const pids = blockers.filter(({ pid }) => pid > 0).map(({ pid }) => `select pg_terminate_backend(${pid})`)
  const who = blockers.length > 0 ? blockers.map(describeBlocker).join(', ') : 'another transaction'
  const how = pids.length > 0 ? ` (${pids.join('; ')})` : ''
  return new SetupError(
    `Migration ${migration} waited ${Math.round(totalMs / 1000)} s for a lock of ${who}, and was not applied: ` +
      `end that transaction${how} and start again, or wait longer with MIGRATION_LOCK_WAIT_SECONDS.`,
    { cause },
  )
}
