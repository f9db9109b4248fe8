import type { Logger } from 'pino'
import { parseJson } from '../../src/core/json.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, type Clock } from '../../src/core/time.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { Config } from '../config.ts'
import { type Loop, type LoopParts, loop } from '../loop.ts'
import { type Ended, runSvc } from './child-process.ts'
import { claimRun, claimSeconds, type RunKind, recordFailure, releaseClaim, renewClaim } from './runs.ts'

const pollMs = 15_000

type Parts = { storage: Storage; clock: Clock; log: Logger } & LoopParts

/** Scheduled backups and drills: each run is a child process of one of the replicas. */
export const scheduledRuns = (parts: Parts, config: Given): Loop[] =>
  runsIn(config).map((what) => loopOf(what, parts))

type Given = Pick<Config, 'backups' | 'dataDir'>

/** What the settings ask for: backups, drills, both or nothing. */
export function runsIn(config: Given): What[] {
  const { schedule, drillSchedule, env } = config.backups
  const all: What[] = []
  if (schedule !== undefined) all.push({ kind: 'backup', schedule, args: backupArgs(config), env })
  if (drillSchedule !== undefined)
    all.push({ kind: 'drill', schedule: drillSchedule, args: drillArgs(config), env })
  return all
}

const backupArgs = ({ dataDir, backups }: Given): string[] => [
  'db',
  'backup',
  '--json',
  '--data-dir',
  dataDir,
  '--out',
  backups.target!,
  '--limit-rate',
  backups.limitRate,
  '--keep',
  `${backups.keep}`,
  ...(backups.keepDays > 0 ? ['--keep-days', `${backups.keepDays}`] : []),
  ...backups.recipients.flatMap((one) => ['--recipient', one]),
]

const drillArgs = ({ dataDir, backups }: Given): string[] => [
  'db',
  'drill',
  backups.target!,
  '--json',
  '--data-dir',
  dataDir,
  ...(backups.identityFile === undefined ? [] : ['--identity', backups.identityFile]),
]

function loopOf(what: What, parts: Parts): Loop {
  const run = new ScheduledRun(what, parts)
  const { wake, stop } = loop(`scheduled ${what.kind}`, () => run.poll(), pollMs, parts, { firstMs: 1000 })
  return {
    wake,
    async stop() {
      await Promise.all([stop(), run.stop()])
    },
  }
}

type Running = { ended: Promise<void>; lost: AbortController; renewedAt: number }
type What = { kind: RunKind; schedule: string; args: readonly string[]; env: Config['backups']['env'] }

export class ScheduledRun {
  readonly #what: What
  readonly #parts: Parts
  readonly #holder = newId()
  readonly #stopping = new AbortController()
  #running: Running | undefined

  constructor(what: What, parts: Parts) {
    this.#what = what
    this.#parts = parts
  }

  /** Starts the run that is due, or says that the one that runs is alive. */
  async poll(): Promise<void> {
    const { kind, schedule } = this.#what
    const { storage, clock } = this.#parts
    if (this.#stopping.signal.aborted) return
    if (this.#running !== undefined) return this.#renewClaim(this.#running)
    if (!(await claimRun(storage, { kind, schedule, holder: this.#holder, now: clock() }))) return
    const lost = new AbortController()
    const ended = this.#run(AbortSignal.any([this.#stopping.signal, lost.signal]))
      .catch((err: unknown) => this.#parts.log.error({ err, kind }, 'a scheduled run could not be recorded'))
      .finally(() => {
        this.#running = undefined
      })
    this.#running = { ended, lost, renewedAt: performance.now() }
  }

  /** Resolves when the run has ended. */
  async settled(): Promise<void> {
    await this.#running?.ended
  }

  /** Ends a run, which another process, or this one after a restart, does again. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error('The service stops'))
    await this.settled()
  }

  async #renewClaim(running: Running): Promise<void> {
    const { storage, clock } = this.#parts
    const { kind } = this.#what
    const begun = performance.now()
    // While the database does not answer another process may take the run.
    if (begun - running.renewedAt > claimSeconds * 1000)
      running.lost.abort(new Error('The claim has expired'))
    const until = addSeconds(clock(), claimSeconds)
    if (await renewClaim(storage, { kind, holder: this.#holder, until })) running.renewedAt = begun
    else running.lost.abort(new Error('Another process has taken the run'))
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { storage, clock, log } = this.#parts
    const { kind, args, env } = this.#what
    let ended: Ended
    try {
      ended = await runSvc(args, env, signal)
    } catch (err) {
      if (!signal.aborted) throw err
      log.warn({ kind, reason: (err as Error).message }, 'a scheduled run was ended')
      // Only its holder does this: whoever looks next takes the run.
      await renewClaim(storage, { kind, holder: this.#holder, until: clock() })
      return
    }
    const failure = failureOf(kind, ended)
    for (const warning of undone(kind, ended))
      log.warn({ kind, warning }, 'a scheduled run has left something undone')
    if (failure === undefined) log.info({ kind }, 'a scheduled run has succeeded')
    else log.error({ kind, reason: failure.reason }, 'a scheduled run has failed')
    if (failure !== undefined && !failure.isRecorded)
      await storage.write((tx) => recordFailure(tx, kind, { at: clock(), reason: failure.reason }))
    await releaseClaim(storage, kind, this.#holder)
  }
}

type Failure = { reason: string; isRecorded: boolean }

/** A drill that came to a verdict has recorded it; a backup records its success alone. */
function failureOf(kind: RunKind, { code, stdout, stderr }: Ended): Failure | undefined {
  const result = parsed(stdout)
  if (kind === 'backup' && code === 0) return undefined
  if (kind === 'drill' && result?.verdict === 'passed') return undefined
  if (kind === 'drill' && result?.verdict === 'failed') {
    const faults = result.findings?.filter(({ state }) => state === 'error') ?? []
    return { reason: faults.map(({ message }) => message).join(' '), isRecorded: true }
  }
  const said = parsed(stderr.trimEnd().split('\n').at(-1) ?? '')?.error?.message
  return {
    reason: said ?? `svc db ${kind} ended with ${code ?? 'a signal'} and said nothing`,
    isRecorded: false,
  }
}

/** What a backup says that it has left undone; a drill has a count of findings under this name. */
const undone = (kind: RunKind, { stdout }: Ended): readonly string[] => {
  const { warnings } = parsed(stdout) ?? {}
  return kind === 'backup' && Array.isArray(warnings) ? warnings : []
}

type Said = {
  warnings?: string[] | number
  verdict?: string
  findings?: { state: string; message: string }[]
  error?: { message?: string }
}

/** undefined: the process ended before it had written its whole reply; its exit code says how. */
const parsed = (text: string) => parseJson(text) as Said | undefined
