import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { bestEffort } from '../best-effort.ts'
import type { MonotonicClock } from '../clock.ts'
import type { Report } from '../events.ts'
import type { Spool } from '../spool/spool.ts'
import { toUpdateFailure } from '../update/failure.ts'
import { copyAtomic, displacedFile, hasChecksum, moveAtomic, sha256Of, stagedFile } from '../update/files.ts'
import type { PendingUpdate, UpdateJournal } from '../update/journal.ts'
import type { Child } from './child.ts'
import { awaitTrial } from './trial.ts'

/** A trial that is interrupted, for example by a power failure, is repeated once only: it may be the cause. */
const maxTrials = 2

export type BinarySwapOptions = {
  /** The single file of this program. */
  file: string
  version: string
  journal: UpdateJournal
  spool: Pick<Spool, 'append'>
  clock: MonotonicClock
  now: () => Date
  report: Report
  trialSeconds: () => number
  /** Starts that file on trial. */
  start: (file: string) => Child
  signal: AbortSignal
}

/**
 * Replaces this binary with another one, and restores it. A new binary first runs from beside the present one, and
 * replaces it only after a heartbeat: whenever the machine stops before that, it restarts with the working version.
 */
export function binarySwapper(installing: BinarySwapOptions) {
  const { file, version, journal, spool, clock, now, report, signal } = installing
  const staged = stagedFile(file)
  /** Checksum of a binary that passed its trial and could not be installed yet. */
  let proved: string | undefined

  /**
   * Completes what an earlier process left unfinished. Returns whether this process must exec the installed binary.
   */
  async function recover(): Promise<boolean> {
    // It ran until the update that came before.
    await bestEffort(() => rm(displacedFile(file), { force: true }))
    const { pending, backup } = journal.load()
    switch (pending?.state) {
      case 'trying':
        endLeftover(pending.pid, staged)
        if (pending.tries >= maxTrials) reportRolledBack(pending.version, 'its trial was cut short')
        else journal.change({ pending: { ...pending, state: 'staged', pid: undefined } })
        return false
      case 'installing':
        if (pending.version === version) {
          journal.change({ pending: undefined })
          report({ event: 'update', state: 'installed', version })
        } else journal.change({ pending: { ...pending, state: 'staged' } })
        return false
      case 'restoring':
        if ((await sha256Of(file)) !== pending.sha256) return putBack(pending)
        if (backup) journal.change({ backup: { ...backup, spent: true } })
        reportRolledBack(pending.from, pending.reason ?? 'it crashed repeatedly')
        return false
      default:
        return false
    }
  }

  /** Tries the staged binary and installs it. Returns whether this process must exec it. */
  async function attempt(stopAgent: () => Promise<unknown>): Promise<boolean> {
    const { pending } = journal.load()
    if (pending?.state !== 'staged') return false
    if (!(await hasChecksum(staged, pending.sha256))) {
      reportRolledBack(pending.version, 'the verified file does not exist any more')
      return false
    }
    try {
      if (proved !== pending.sha256) {
        await stopAgent()
        const objection = await runOnTrial(pending)
        if (signal.aborted) return false
        if (objection !== undefined) {
          reportRolledBack(pending.version, objection)
          await bestEffort(() => rm(staged, { force: true }))
          return false
        }
        proved = pending.sha256
      }
      await stopAgent()
      journal.change({ pending: { ...pending, state: 'installing' } })
      await moveAtomic(staged, file)
      return true
    } catch (error) {
      const { kind, message } = toUpdateFailure(error)
      const reason = `it cannot be installed: ${message}`
      if (kind === 'later') {
        await bestEffort(() => journal.change({ pending }))
        report({ event: 'update', state: 'failed', version: pending.version, reason })
      } else {
        reportRolledBack(pending.version, reason)
        await bestEffort(() => rm(staged, { force: true }))
      }
      return false
    }
  }

  async function runOnTrial(pending: PendingUpdate): Promise<string | undefined> {
    const trying: PendingUpdate = { ...pending, state: 'trying', tries: pending.tries + 1 }
    journal.change({ pending: trying })
    report({ event: 'update', state: 'trying', version: pending.version })
    const child = installing.start(staged)
    const seconds = installing.trialSeconds()
    try {
      // Recorded so that the process can be killed if it outlives this one.
      await bestEffort(() => journal.change({ pending: { ...trying, pid: child.pid } }))
      return await awaitTrial(child, { version: pending.version, seconds, clock, signal })
    } catch (error) {
      if (signal.aborted) return undefined
      throw error
    } finally {
      await child.stop()
    }
  }

  function reportRolledBack(target: string, reason: string): void {
    report({ event: 'update', state: 'rolled_back', version: target, reason })
    const outcome = { targetVersion: target, state: 'rolled_back', reason: reason.slice(0, 1000) } as const
    spool.append({ kind: 'update', outcome }, { durable: true })
    void bestEffort(() => journal.fail(target, reason, now()))
  }

  /** Restores the previous binary, if there is one that was not restored yet. Returns whether to exec it. */
  async function restore(reason: string): Promise<boolean> {
    const { backup } = journal.load()
    if (!backup || backup.spent || backup.version === version) return false
    if (!(await hasChecksum(journal.backupFile, backup.sha256))) return false
    const pending: PendingUpdate = {
      state: 'restoring',
      version: backup.version,
      from: version,
      sha256: backup.sha256,
      tries: 0,
      reason,
    }
    try {
      journal.change({ pending })
      return await putBack(pending)
    } catch (error) {
      const failed = `the previous version cannot be restored: ${(error as Error).message}`
      report({ event: 'update', state: 'failed', version: backup.version, reason: failed })
      return false
    }
  }

  async function putBack({ sha256 }: PendingUpdate): Promise<boolean> {
    if (!(await hasChecksum(journal.backupFile, sha256))) {
      journal.change({ pending: undefined })
      return false
    }
    // A full disk has no space for a copy, but a rename needs none.
    await copyAtomic(journal.backupFile, file).catch(() => moveAtomic(journal.backupFile, file))
    return true
  }

  return { recover, attempt, restore }
}
export type BinarySwapper = ReturnType<typeof binarySwapper>

/** Kills a trial whose watchdog was killed, if that process still exists. */
function endLeftover(pid: number | undefined, staged: string): void {
  try {
    if (pid === undefined || !readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(staged)) return
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It no longer exists.
  }
}
