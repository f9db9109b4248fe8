import { BeforeCommitHooks } from '../before-commit.ts'
import { isOutage } from '../database-errors.ts'
import type { Db } from '../db.ts'
import { currentFairShareKey, FairQueue } from '../fair-queue.ts'
import { NestedWriteGuard } from '../nested-writes.ts'
import type { PoolUsage } from '../observer.ts'
import { inTrace, traced } from '../trace.ts'
import type { SqliteConnection } from './connection.ts'
import { WriteExecutor } from './kysely.ts'

type Work = (tx: Db) => Promise<unknown>

type Job = {
  work: Work
  unsynced: boolean
  since: number
  /** It may have caused the failure of a shared commit, so it gets a commit of its own. */
  isAlone?: true
  resolve: (value: never) => void
  reject: (error: unknown) => void
}

type Outcome = { value: unknown } | { error: unknown }
type Finished = { job: Job; value: unknown }
/** Committed jobs that wait for a sync, and the tables that may have changed. */
type Written = { synced: readonly Finished[]; touched: ReadonlySet<string> }

const nothing: Written = { synced: [], touched: new Set() }

type Limits = {
  /** Jobs that share one commit. */
  jobs: number
  /** Milliseconds after which a batch takes no further job. */
  milliseconds: number
  /** Milliseconds after which a job fails, so that it cannot block the others for ever. */
  patience: number
}

type Log = {
  /** Called before each transaction, which begins when this resolves. @throws why nothing may be written */
  ready(): Promise<void> | undefined
  /** Syncs to disk what was committed. */
  sync(): Promise<void>
  /** Called after each commit, which may have changed rows of these tables. */
  committed(touched: ReadonlySet<string>): void
  /** Called once the synced jobs of a commit are on disk; without `touched` if it had none. */
  settled(touched?: ReadonlySet<string>): void
  /** Called when a job had its turn. */
  waited?(milliseconds: number): void
}

/**
 * The one writer of a SQLite file. Jobs run strictly one after the other, and a whole batch shares one transaction
 * and so one fsync: no promise resolves before that fsync has returned, and that of the batch before. Only telemetry
 * may be lost in a power failure, never when the process dies: it waits for no fsync.
 */
export class GroupCommit {
  readonly #connection: SqliteConnection
  readonly #log: Log
  readonly #limits: Limits
  readonly #nesting = new NestedWriteGuard()
  readonly #waiting = new FairQueue<Job>()
  /** Jobs of the next batch, taken from those that wait. */
  #queue: Job[] = []
  #pump: Promise<void> | undefined
  #closed = false
  /** Fails the running job. */
  #giveUp: ((error: Error) => void) | undefined
  /** Called when this many jobs wait. */
  #waiter: { jobs: number; go: () => void } | undefined

  constructor(connection: SqliteConnection, log: Log, limits: Partial<Limits> = {}) {
    this.#connection = connection
    this.#log = log
    this.#limits = { jobs: 128, milliseconds: 5, patience: 10_000, ...limits }
  }

  write<T>(work: (tx: Db) => Promise<T>, unsynced: boolean): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#nesting.check()
      if (this.#closed) throw new Error('The storage is closed')
      const job = { work: traced(work), unsynced, since: performance.now(), resolve, reject }
      this.#waiting.push(currentFairShareKey(), job)
      // What a batch does for all of its jobs belongs to the trace of none.
      this.#pump ??= inTrace(undefined, () => this.#run())
      if (this.#waiter && this.#pending >= this.#waiter.jobs) this.#waiter.go()
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#pump
  }

  /**
   * While the disk syncs one batch the next may be written, once as many jobs wait for it: earlier, batches would be
   * small and many. A third one waits for the disk.
   */
  async #run(): Promise<void> {
    let settled = Promise.resolve()
    while (this.#pending > 0) {
      // One turn of the event loop lets every request that has already arrived join the batch.
      await new Promise((resolve) => setImmediate(resolve))
      const written = await this.#batch()
      await settled
      settled = this.#settle(written)
      await Promise.race([settled, this.#untilWaiting(written.synced.length)])
      if (this.#pending === 0) await settled
    }
    this.#pump = undefined
  }

  usage(): PoolUsage {
    return { limit: 1, inUse: this.#pump ? 1 : 0, waiting: this.#pending }
  }

  get #pending(): number {
    return this.#queue.length + this.#waiting.size
  }

  /** The job at this place of the batch: one left over from the batch before, or the next waiting one. */
  #jobAt(place: number): Job | undefined {
    if (place < this.#queue.length) return this.#queue[place]
    const job = this.#waiting.shift()
    if (!job) return undefined
    this.#queue.push(job)
    this.#log.waited?.(performance.now() - job.since)
    return job
  }

  #untilWaiting(jobs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiter = { jobs, go: resolve }
    if (this.#pending >= jobs) resolve()
    return promise
  }

  /** Returns what was committed and waits for a sync. */
  async #batch(): Promise<Written> {
    const { touched } = this.#connection
    try {
      await this.#log.ready()
      this.#connection.run('begin immediate', [])
      touched.clear()
    } catch (error) {
      for (let job = this.#jobAt(0); job; job = this.#jobAt(0)) {
        this.#queue.shift()
        job.reject(error)
      }
      return nothing
    }
    const finished: Finished[] = []
    const patience = this.#startPatience()
    try {
      const hooks = new BeforeCommitHooks()
      await this.#fill(finished, hooks)
      if (hooks.size > 0) await this.#finish(hooks)
      this.#connection.run('commit', [])
    } catch (error) {
      this.#rollBack()
      this.#fail(
        finished.map(({ job }) => job),
        error,
      )
      return nothing
    } finally {
      clearInterval(patience)
    }
    this.#log.committed(touched)
    const synced = finished.filter(({ job }) => !job.unsynced)
    for (const { job, value } of finished) if (job.unsynced) job.resolve(value as never)
    if (synced.length === 0) this.#log.settled()
    return { synced, touched: new Set(touched) }
  }

  /** The deferred work of one job may be at fault, and must not fail the others: each is run again by itself. */
  #fail(jobs: Job[], error: unknown): void {
    if (jobs.length > 1 && !isOutage(error)) {
      for (const job of jobs) job.isAlone = true
      this.#queue.unshift(...jobs)
      return
    }
    for (const job of jobs) job.reject(error)
  }

  /** Resolves synced jobs once the disk has them. */
  async #settle({ synced, touched }: Written): Promise<void> {
    if (synced.length === 0) return
    try {
      await this.#log.sync()
    } catch (error) {
      for (const { job } of synced) job.reject(error)
      return
    }
    for (const { job, value } of synced) job.resolve(value as never)
    this.#log.settled(touched)
  }

  /**
   * Runs jobs and takes them from the queue. At first without savepoints, each of which would copy what its job
   * changes: when a job fails after changing something, those before it are rerun, and all with savepoints.
   */
  async #fill(finished: Finished[], hooks: BeforeCommitHooks): Promise<void> {
    const end = performance.now() + this.#limits.milliseconds
    let usesSavepoints = false
    try {
      while (finished.length < this.#limits.jobs && (finished.length === 0 || performance.now() < end)) {
        const job = this.#jobAt(finished.length)
        if (!job || (finished.length > 0 && (job.isAlone || finished[0]!.job.isAlone))) break
        const { changed } = this.#connection
        const { size } = hooks
        const outcome = await (usesSavepoints ? this.#attempt(job.work, hooks) : this.#work(job.work, hooks))
        if ('value' in outcome) {
          finished.push({ job, value: outcome.value })
          continue
        }
        this.#queue.splice(finished.length, 1)
        job.reject(outcome.error)
        hooks.cut(size)
        if (!this.#connection.database.inTransaction) throw outcome.error
        if (!usesSavepoints && this.#connection.changed > changed) {
          this.#connection.run('rollback', [])
          this.#connection.run('begin immediate', [])
          usesSavepoints = true
          finished.length = 0
          hooks.cut(0)
        }
      }
    } finally {
      this.#queue.splice(0, finished.length)
    }
  }

  async #attempt(work: Work, hooks: BeforeCommitHooks): Promise<Outcome> {
    try {
      this.#connection.run('savepoint job', [])
      const outcome = await this.#work(work, hooks)
      if ('error' in outcome) this.#rollBackJob()
      else this.#connection.run('release job', [])
      return outcome
    } catch (error) {
      this.#rollBackJob()
      return { error }
    }
  }

  /** @throws the error, which ends the batch */
  async #finish(hooks: BeforeCommitHooks): Promise<void> {
    const outcome = await this.#work((tx) => hooks.finish(tx))
    if ('error' in outcome) throw outcome.error
  }

  /** A job whose transaction SQLite rolled back has failed, even if its promise resolves. */
  #work(work: Work, hooks?: BeforeCommitHooks): Promise<Outcome> {
    const write = new WriteExecutor(this.#connection, hooks)
    return new Promise((resolve) => {
      const end = (outcome: Outcome) => {
        write.end()
        resolve(write.failure ? { error: write.failure } : outcome)
      }
      const fail = (error: unknown) => end({ error })
      this.#giveUp = fail
      try {
        this.#nesting.run(write, () => work(write.tx)).then((value) => end({ value }), fail)
      } catch (error) {
        fail(error)
      }
    })
  }

  #rollBackJob(): void {
    try {
      if (!this.#connection.database.inTransaction) return
      this.#connection.run('rollback to job', [])
      this.#connection.run('release job', [])
    } catch {
      // Without its savepoint only the whole transaction can be undone.
      this.#rollBack()
    }
  }

  /** Cannot fail. */
  #rollBack(): void {
    try {
      if (this.#connection.database.inTransaction) this.#connection.run('rollback', [])
    } catch {
      // Where SQLite refuses a rollback, it has already rolled back.
    }
  }

  /** One timer for the whole batch: by the time it fails a job, the batch accepts no further one. */
  #startPatience(): NodeJS.Timeout {
    return setInterval(() => {
      this.#giveUp?.(new Error('A write was given up: it waited for something outside the database'))
    }, this.#limits.patience)
  }
}
