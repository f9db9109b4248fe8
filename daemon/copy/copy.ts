import { isDeepStrictEqual } from 'node:util'
import { recordAudit } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Instant, systemClock } from '../../src/core/time.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { type DatabaseMove, describeMove, readMove } from '../../src/storage/copy/moved.ts'
import {
  assertMayClose,
  type ClosedSource,
  type CopySource,
  openSource,
  withClosedSource,
} from '../../src/storage/copy/source.ts'
import {
  type CopyOrigin,
  type CopyTarget,
  describeLocation,
  inspectTarget,
  type TargetContents,
  TargetNotEmptyError,
  withCopyTarget,
} from '../../src/storage/copy/target.ts'
import type { Db } from '../../src/storage/open.ts'
import { traitsAt } from '../../src/storage/traits.ts'
import { isMoved } from '../backup/contents.ts'
import { assertOwnDirectory } from '../backup/own-directory.ts'
import { copyTargetOf, databaseOf } from '../config.ts'
import { createCopyVerifier } from './copy-verifier.ts'
import { type CopyEstimate, estimateCopy } from './estimate.ts'
import { assertFilesFit, copyFiles } from './files.ts'
import { copyOriginOf, isUnchangedSince } from './origin.ts'
import { type CopyPass, copyTable } from './pass.ts'

export type CopyOptions = {
  'data-dir'?: string | undefined
  to?: string | undefined
}

export type CopyPlan = { from: string; to: string; target: TargetContents; tables: number } & CopyEstimate

export type CopySummary = {
  from: string
  to: string
  movedAt: Instant
  rows: number
  files: number
  /** In the last pass, while writes were refused. */
  rewritten: { chunks: number; rows: number }
  seconds: { first: number; last: number }
  /** As in the tail of a backup. */
  tables: Record<string, { rows: number; sha256: string }>
}

export type CopyEvents = {
  onPlan(plan: CopyPlan): void
  onProgress(pass: CopyPass, done: number, total: number): void
}

/** The ledger too: a migration of a closed database would be lost. */
const isOwn = (table: string): boolean => isMoved(table) || table === 'svc_migrations'

/** Longer first passes are followed by another one, so that less is left for the last. */
const longMs = 60_000

type Job = {
  from: DatabaseLocation
  to: DatabaseLocation
  origin: CopyOrigin
  plan: CopyPlan
  move: DatabaseMove | undefined
}

/** What `copyDatabase` would do. @throws SetupError when it would refuse */
export const planCopy = (options: CopyOptions): Promise<CopyPlan> =>
  withCopyJob(options, async (_, { plan }) => plan)

/**
 * Copies a whole installation into an empty database, first while it is served, and then what has changed since, while
 * its writes are refused. It stays closed for writing.
 * @throws SetupError
 */
export const copyDatabase = (options: CopyOptions, on: CopyEvents): Promise<CopySummary> =>
  withCopyJob(options, (source, job) => {
    on.onPlan(job.plan)
    return withCopyTarget(job.to, job.origin, async (target) => {
      const begun = performance.now()
      const run = (pass: CopyPass) => copyAll(source.read, target, { ...job, pass, on })
      await run('first')
      if (performance.now() - begun > longMs) await run('again')
      const first = performance.now() - begun
      const end = await copyRest(target, job, on)
      const last = performance.now() - begun - first
      return { ...end, seconds: { first: seconds(first), last: seconds(last) } }
    })
  })

const seconds = (ms: number): number => Math.round(ms / 100) / 10

async function withCopyJob<T>(
  options: CopyOptions,
  work: (source: CopySource, job: Job) => Promise<T>,
): Promise<T> {
  const from = databaseOf(options)
  const to = copyTargetOf(options.to, from.dataDir)
  for (const place of [from, to]) if (traitsAt(place).hasOwnFiles) assertOwnDirectory(place.dataDir)
  const source = await openSource(from)
  try {
    const origin = await copyOriginOf(source)
    await assertMayClose(source, isOwn)
    const move = await readMove(source)
    // One that was closed, and whose copy lacks its last step, is copied to its end.
    if (move && move.target !== describeLocation(to)) throw alreadyMoved(move)
    const found = await inspectTarget(to, origin, { place: from, db: source.read }).catch((error) => {
      throw move && error instanceof TargetNotEmptyError ? alreadyMoved(move) : error
    })
    if (move && found.state === 'empty') throw alreadyMoved(move)
    if (found.state === 'empty') assertFilesFit(from, to)
    const size = await estimateCopy(source, origin.tables)
    const plan = {
      from: describeLocation(from),
      to: describeLocation(to),
      target: found,
      tables: origin.tables.length,
      ...size,
    }
    return await work(source, { from, to, origin, plan, move })
  } finally {
    await source.close()
  }
}

const alreadyMoved = (move: DatabaseMove) =>
  new SetupError(`${describeMove(move)}: copy that one, or open this one again with svc db copy --reopen.`)

type Run = Pick<Job, 'origin' | 'plan'> & {
  pass: CopyPass
  on: CopyEvents
  seen?: Parameters<typeof copyTable>[0]['seen']
}

async function copyAll(source: Db, target: CopyTarget, { origin, plan, pass, on, seen }: Run) {
  const rewritten = { chunks: 0, rows: 0 }
  let done = 0
  on.onProgress(pass, 0, plan.rows)
  for (const table of origin.tables) {
    const progress = (rows: number) => {
      done += rows
      on.onProgress(pass, done, Math.max(done, plan.rows))
    }
    const own = await copyTable({ source, target, pass, progress, ...(seen && { seen }) }, table)
    rewritten.chunks += own.chunks
    rewritten.rows += own.rows
  }
  return rewritten
}

/** The last pass. Until the source is closed for good, a failure leaves it as it was. */
async function copyRest(target: CopyTarget, job: Job, on: CopyEvents): Promise<Omit<CopySummary, 'seconds'>> {
  const { from, to, origin, plan } = job
  return withClosedSource(from, isOwn, async ({ tx, source, counters, end }) => {
    await assertUnchanged(source, job)
    const move = job.move ?? { target: describeLocation(to), at: systemClock() }
    // In the source, so that both have it: of the target, nothing differs.
    if (!job.move) await recordAudit(tx, entryOf(move))
    const all = await createCopyVerifier(tx, from)
    const rewritten = await copyAll(tx, target, { origin, plan, pass: 'last', on, seen: all.seen })
    const tables = all.end()
    const files = await copyFiles(from, to)
    let isClosed = job.move !== undefined
    try {
      await target.finish(await counters(), async () => {
        await end(job.move ? undefined : move)
        isClosed = true
      })
    } catch (error) {
      if (!isClosed) throw error
      const reason = error instanceof Error ? error.message : String(error)
      throw new SetupError(`The copy is complete but for its last step, so repeat it: ${reason}`, {
        cause: error,
      })
    }
    const rows = Object.values(tables).reduce((sum, one) => sum + one.rows, 0)
    return { from: plan.from, to: plan.to, movedAt: move.at, rows, files, rewritten, tables }
  })
}

/** What was true when the copy began. @throws SetupError */
async function assertUnchanged(source: ClosedSource['source'], { origin, move }: Job): Promise<void> {
  const now = await readMove(source)
  if (now && !isDeepStrictEqual(now, move)) throw alreadyMoved(now)
  if (move && !now) throw new SetupError('This database was opened again meanwhile: repeat svc db copy.')
  if (await isUnchangedSince(source, origin)) return
  throw new SetupError(
    'This database was migrated meanwhile, and still takes writes: name an empty target, and use the version of svc that serves it.',
  )
}

const entryOf = (move: DatabaseMove) =>
  toDraftEntry(
    {
      orgId: null,
      actorType: 'system',
      actorId: null,
      actorEmail: null,
      action: 'database.copy',
      resourceType: 'database',
      resourceId: null,
      resourceName: null,
      details: { target: move.target },
      ipAddress: null,
      userAgent: null,
      result: 'success',
    },
    move.at,
  )
