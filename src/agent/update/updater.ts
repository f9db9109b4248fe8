import { rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ApiError, type Client, NetworkError, TimeoutError } from '../../core/client.ts'
import type { Report } from '../events.ts'
import type { SettingsStore } from '../settings.ts'
import type { Spool } from '../spool/spool.ts'
import { download, type Source } from './download.ts'
import { failureOfFiles, UpdateFailure } from './failure.ts'
import {
  checkRoom,
  checkRunnable,
  copyWhole,
  has,
  partialFile,
  removePartial,
  sha256Of,
  stagedFile,
} from './files.ts'
import type { UpdateJournal } from './journal.ts'
import { askFor, type Candidate, candidateFrom, checkDirection, type Offer } from './offer.ts'
import { bound, type Self } from './self.ts'
import type { Trust } from './trust.ts'

/** After so many offers that came to nothing the service is told: the agent itself may have ended over them. */
const mostTries = 5

export type Updating = {
  self: Self
  stateDir: string
  settings: SettingsStore
  trust: Trust
  journal: UpdateJournal
  spool: Pick<Spool, 'append'>
  /** Of the service, without credentials. */
  client: Client
  source: Source
  report: Report
  now: () => Date
  /** Tells the service at once, or not at all. */
  begun: (version: string) => Promise<void>
  /** Has the staged binary tried in place of this program. */
  tryOut: (version: string) => void
}

export type Updater = {
  takesUpdates(): boolean
  /** Goes to that version if it may; comes back at once. */
  consider(offer: Offer): void
  /** When what was considered came to an end. */
  settled(): Promise<void>
}

/** Gets another version of this program and verifies it; what becomes of it is its watchdog's business. */
export function updaterOf(updating: Updating): Updater {
  const { self, stateDir, settings, trust, journal, spool, report, now } = updating
  let hindrance = bound(self)
  let underWay: Promise<void> | undefined
  /** By the journal, where it can be written. */
  let tries = 0

  let hasSaidWhy = false

  function takesUpdates(): boolean {
    if (hindrance === undefined) return settings.load().autoUpdate
    if (!hasSaidWhy) report({ event: 'update', state: 'off', version: self.version, reason: hindrance })
    hasSaidWhy = true
    return false
  }

  async function goTo(offer: Offer): Promise<void> {
    const { version } = offer
    try {
      checkDirection(offer, self.version)
      tries = counted(version)
      if (tries > mostTries) throw new UpdateFailure('failed', `it came to nothing ${mostTries} times`)
      await prepare(version, self.file!)
      report({ event: 'update', state: 'downloaded', version })
      updating.tryOut(version)
    } catch (error) {
      if (updating.source.signal.aborted) return
      tell(version, failureIn(error))
    }
  }

  function tell(version: string, failure: UpdateFailure): void {
    const { message: reason } = failure
    if (failure.kind === 'never') {
      hindrance = reason
      takesUpdates()
      return
    }
    const state = failure.kind === 'refused' ? 'refused' : 'failed'
    report({ event: 'update', state, version, reason })
    if (failure.kind === 'later' && tries < mostTries) return
    tries = 0
    try {
      journal.fail(version, reason, now())
    } catch {
      // Without room for it the next offer ends the same way.
    }
    const outcome = { targetVersion: version, state, reason: reason.slice(0, 1000) } as const
    spool.append({ kind: 'update', outcome }, { durable: true })
  }

  function counted(version: string): number {
    try {
      return journal.begin(version)
    } catch {
      return tries + 1
    }
  }

  async function prepare(version: string, file: string): Promise<void> {
    const machine = { platform: process.platform, architecture: process.arch }
    const info = await askFor(updating.client, version, machine)
    const candidate = candidateFrom(info, { version, present: self.version, machine, trust })
    const { pending } = journal.load()
    const staged = stagedFile(file)
    if (pending?.sha256 === candidate.sha256 && (await has(staged, candidate.sha256))) return
    await checkRoom([
      { directory: dirname(file), bytes: candidate.size },
      { directory: stateDir, bytes: candidate.size },
    ])
    report({ event: 'update', state: 'downloading', version })
    await updating.begun(version)
    await fetchTo(staged, file, candidate)
    await backUp(file)
    journal.change({
      pending: { state: 'staged', version, from: self.version, sha256: candidate.sha256, tries: 0 },
      begun: undefined,
    })
  }

  async function fetchTo(staged: string, file: string, candidate: Candidate): Promise<void> {
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
    const isThere = backup?.sha256 === sha256 && (await has(journal.backupFile, sha256))
    if (!isThere) await copyWhole(file, journal.backupFile)
    journal.change({ backup: { version: self.version, sha256, spent: false } })
  }

  return {
    takesUpdates,
    consider(offer) {
      const { version } = offer
      if (underWay || version === self.version || !takesUpdates()) return
      if (journal.failedLately(version, now())) return
      underWay = goTo(offer).finally(() => {
        underWay = undefined
      })
    },
    settled: async () => underWay,
  }
}

function failureIn(error: unknown): UpdateFailure {
  const network = error instanceof NetworkError || error instanceof TimeoutError || error instanceof ApiError
  if (network) return new UpdateFailure('later', error.message)
  return failureOfFiles(error)
}
