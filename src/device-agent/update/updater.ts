import { rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ApiError, type Client, NetworkError, TimeoutError } from '../../core/client.ts'
import type { Report } from '../events.ts'
import type { SettingsStore } from '../settings.ts'
import type { Spool } from '../spool/spool.ts'
import { type DownloadSource, download } from './download.ts'
import { type Executable, updateBlocker } from './executable.ts'
import { toUpdateFailure, UpdateFailure } from './failure.ts'
import {
  checkDiskSpace,
  checkRunnable,
  copyAtomic,
  hasChecksum,
  partialFile,
  removePartial,
  sha256Of,
  stagedFile,
} from './files.ts'
import type { UpdateJournal } from './journal.ts'
import { type Candidate, checkNotDowngrade, fetchDownloadInfo, type Offer, verifyCandidate } from './offer.ts'
import type { TrustStore } from './trust-store.ts'

/** After so many offers that came to nothing the service is told: the agent itself may have ended over them. */
const maxTries = 5

export type UpdaterOptions = {
  self: Executable
  stateDir: string
  settings: SettingsStore
  trust: TrustStore
  journal: UpdateJournal
  spool: Pick<Spool, 'append'>
  /** Of the service, without credentials. */
  client: Client
  source: DownloadSource
  report: Report
  now: () => Date
  /** Tells the service at once, or not at all. */
  reportStarted: (version: string) => Promise<void>
  /** Has the staged binary tried in place of this program. */
  startTrial: (version: string) => void
}

export type Updater = {
  takesUpdates(): boolean
  /** Goes to that version if it may; comes back at once. */
  consider(offer: Offer): void
  /** When what was considered came to an end. */
  settled(): Promise<void>
}

/** Gets another version of this program and verifies it; what becomes of it is its watchdog's business. */
export function updaterOf(updating: UpdaterOptions): Updater {
  const { self, stateDir, settings, trust, journal, spool, report, now } = updating
  let unsupportedReason = updateBlocker(self)
  let inFlight: Promise<void> | undefined
  /** By the journal, where it can be written. */
  let tries = 0

  let hasReportedWhy = false

  function takesUpdates(): boolean {
    if (unsupportedReason === undefined) return settings.load().autoUpdate
    if (!hasReportedWhy)
      report({ event: 'update', state: 'off', version: self.version, reason: unsupportedReason })
    hasReportedWhy = true
    return false
  }

  async function startUpdate(offer: Offer): Promise<void> {
    const { version } = offer
    try {
      checkNotDowngrade(offer, self.version)
      tries = countAttempt(version)
      if (tries > maxTries) throw new UpdateFailure('failed', `it came to nothing ${maxTries} times`)
      await prepare(version, self.file!)
      report({ event: 'update', state: 'downloaded', version })
      updating.startTrial(version)
    } catch (error) {
      if (updating.source.signal.aborted) return
      reportFailure(version, failureIn(error))
    }
  }

  function reportFailure(version: string, failure: UpdateFailure): void {
    const { message: reason } = failure
    if (failure.kind === 'never') {
      unsupportedReason = reason
      takesUpdates()
      return
    }
    const state = failure.kind === 'refused' ? 'refused' : 'failed'
    report({ event: 'update', state, version, reason })
    if (failure.kind === 'later' && tries < maxTries) return
    tries = 0
    try {
      journal.fail(version, reason, now())
    } catch {
      // Without room for it the next offer ends the same way.
    }
    const outcome = { targetVersion: version, state, reason: reason.slice(0, 1000) } as const
    spool.append({ kind: 'update', outcome }, { durable: true })
  }

  function countAttempt(version: string): number {
    try {
      return journal.begin(version)
    } catch {
      return tries + 1
    }
  }

  async function prepare(version: string, file: string): Promise<void> {
    const machine = { platform: process.platform, architecture: process.arch }
    const info = await fetchDownloadInfo(updating.client, version, machine)
    const candidate = verifyCandidate(info, { version, present: self.version, machine, trust })
    const { pending } = journal.load()
    const staged = stagedFile(file)
    if (pending?.sha256 === candidate.sha256 && (await hasChecksum(staged, candidate.sha256))) return
    await checkDiskSpace([
      { directory: dirname(file), bytes: candidate.size },
      { directory: stateDir, bytes: candidate.size },
    ])
    report({ event: 'update', state: 'downloading', version })
    await updating.reportStarted(version)
    await downloadTo(staged, file, candidate)
    await backUp(file)
    journal.change({
      pending: { state: 'staged', version, from: self.version, sha256: candidate.sha256, tries: 0 },
      begun: undefined,
    })
  }

  async function downloadTo(staged: string, file: string, candidate: Candidate): Promise<void> {
    const partial = partialFile(file, candidate.sha256)
    await removePartial(file, partial)
    // Of the version before, where that was not gone to.
    await rm(staged, { force: true })
    await download(candidate, partial, updating.source)
    await checkRunnable(partial)
    await rename(partial, staged)
  }

  async function backUp(file: string): Promise<void> {
    const sha256 = await sha256Of(file)
    const { backup } = journal.load()
    const isThere = backup?.sha256 === sha256 && (await hasChecksum(journal.backupFile, sha256))
    if (!isThere) await copyAtomic(file, journal.backupFile)
    journal.change({ backup: { version: self.version, sha256, spent: false } })
  }

  return {
    takesUpdates,
    consider(offer) {
      const { version } = offer
      if (inFlight || version === self.version || !takesUpdates()) return
      if (journal.failedRecently(version, now())) return
      inFlight = startUpdate(offer).finally(() => {
        inFlight = undefined
      })
    },
    settled: async () => inFlight,
  }
}

function failureIn(error: unknown): UpdateFailure {
  const network = error instanceof NetworkError || error instanceof TimeoutError || error instanceof ApiError
  if (network) return new UpdateFailure('later', error.message)
  return toUpdateFailure(error)
}
