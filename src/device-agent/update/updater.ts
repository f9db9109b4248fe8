import { rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Client } from '../../core/client.ts'
import { isFileError } from '../durable.ts'
import type { Report } from '../events.ts'
import { isServiceFailure } from '../retry.ts'
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

/** After this many failed attempts the failure is reported: the agent itself may have crashed during them. */
const maxTries = 5

export type UpdaterOptions = {
  self: Executable
  stateDir: string
  settings: SettingsStore
  trust: TrustStore
  journal: UpdateJournal
  spool: Pick<Spool, 'append'>
  /** A client of the service, without credentials. */
  client: Client
  source: DownloadSource
  report: Report
  now: () => Date
  /** Reports the start to the service. A failure of the service or the network does not hold up the update. */
  reportStarted: (version: string) => Promise<void>
  /** Requests a trial of the staged binary. */
  startTrial: (version: string) => void
}

export type Updater = {
  takesUpdates(): boolean
  /** Starts an update to that version if it is allowed; returns immediately. */
  consider(offer: Offer): void
  /** Resolves when the update in progress has ended. */
  settled(): Promise<void>
}

/** Downloads and verifies another version of this program; the watchdog installs it. */
export function updaterOf(updating: UpdaterOptions): Updater {
  const { self, stateDir, settings, trust, journal, spool, report, now } = updating
  let unsupportedReason = updateBlocker(self)
  let inFlight: Promise<void> | undefined
  /** Attempts, in memory for when the journal cannot be written. */
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
      if (tries > maxTries) throw new UpdateFailure('failed', `it failed ${maxTries} times`)
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
    } catch (error) {
      // The version is tried again with every offer, as its failure is not on record.
      const reason = `update.json could not be written: ${(error as Error).message}`
      report({ event: 'update', state: 'failed', version, reason })
    }
    const outcome = { targetVersion: version, state, reason: reason.slice(0, 1000) } as const
    spool.append({ kind: 'update', outcome }, { durable: true })
  }

  function countAttempt(version: string): number {
    try {
      return journal.begin(version)
    } catch (error) {
      if (!isFileError(error)) throw error
      // It is written again once the download is verified, and that failure is reported.
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
    // Left over from another version that was not installed.
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
  if (isServiceFailure(error)) return new UpdateFailure('later', error.message)
  return toUpdateFailure(error)
}
