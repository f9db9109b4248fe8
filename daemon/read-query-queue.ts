import { type Counter, Gauge, type Registry } from 'prom-client'
import { addCount, countOf } from '../src/core/counts.ts'
import { Problem } from '../src/core/errors.ts'
import { classifyDatabaseError } from '../src/storage/database-errors.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { addCounter } from './metrics.ts'

export type ReadQueryLimits = {
  /** Milliseconds one statement may take, and a read query of several in all. */
  timeoutMs: number
  atOnce: number
  perTenant: number
  perCaller: number
  /** Milliseconds that a further read query waits for its turn. */
  waitMs: number
}

/** The caller of a read query, and its tenant. */
export type ReadQueryCaller = { id: string; tenant: string }

type Waiting = { caller: ReadQueryCaller; go(): void }

/** Waiting read queries of one caller per running one; further ones are refused immediately. */
const waitingForEach = 8
/** A read query of several statements has used up its time between two of them. */
class OutOfTime extends Error {}

/** Retry-After when too many read queries run. */
const retrySeconds = 2
/** Retry-After when a read query was too slow. */
const retrySlowSeconds = 30

const outcomes = ['answered', 'failed', 'too_slow', 'refused'] as const
type Outcome = (typeof outcomes)[number]

/**
 * Runs expensive reads of callers: filters, searches, long lists. Their concurrency is bounded by caller, by tenant and in total,
 * and their time is limited, so that no tenant blocks the others, even with many users and keys.
 */
export class ReadQueryQueue {
  readonly #db: Db
  readonly #limits: ReadQueryLimits
  /** Running read queries of each caller with at least one. */
  readonly #byCaller = new Map<string, number>()
  readonly #byTenant = new Map<string, number>()
  readonly #waiting: Waiting[] = []
  readonly #ended: Counter<'outcome'>
  #all = 0

  constructor(storage: Pick<Storage, 'readQueries'>, limits: ReadQueryLimits, metrics: Registry) {
    this.#db = storage.readQueries
    this.#limits = limits
    const ended = {
      name: 'svc_questions_total',
      help: 'Filters, searches and long lists that callers asked for, by how it ended.',
    }
    this.#ended = addCounter(metrics, ended, 'outcome', outcomes)
    const atOnce: Gauge<'state'> = new Gauge({
      name: 'svc_questions_at_once',
      help: 'Questions that run, and questions that wait for their turn.',
      labelNames: ['state'],
      registers: [metrics],
      collect: () => {
        atOnce.set({ state: 'running' }, this.#all)
        atOnce.set({ state: 'waiting' }, this.#waiting.length)
      },
    })
  }

  /** @throws too_many_questions, question_too_slow */
  async run<T>(caller: ReadQueryCaller, work: (db: Db, checkTime: () => void) => Promise<T>): Promise<T> {
    if (this.#mayRun(caller)) this.#take(caller)
    else await this.#turn(caller)
    try {
      const answer = await work(this.#db, this.#deadline())
      this.#count('answered')
      return answer
    } catch (error) {
      if (!(error instanceof OutOfTime) && classifyDatabaseError(error) !== 'too slow') {
        this.#count('failed')
        throw error
      }
      this.#count('too_slow')
      const message = `The answer took longer than ${this.#limits.timeoutMs / 1000} s: narrow it down, such as to a shorter time or fewer devices, or request less`
      throw new Problem('question_too_slow', message, { retryAfter: retrySlowSeconds })
    } finally {
      this.#give(caller)
    }
  }

  #deadline(): () => void {
    const begun = performance.now()
    return () => {
      if (performance.now() - begun >= this.#limits.timeoutMs) throw new OutOfTime()
    }
  }

  #mayRun({ id, tenant }: ReadQueryCaller): boolean {
    const { atOnce, perTenant, perCaller } = this.#limits
    return (
      this.#all < atOnce &&
      countOf(this.#byTenant, tenant) < perTenant &&
      countOf(this.#byCaller, id) < perCaller
    )
  }

  #take({ id, tenant }: ReadQueryCaller): void {
    this.#all += 1
    addCount(this.#byCaller, id, 1)
    addCount(this.#byTenant, tenant, 1)
  }

  #turn(caller: ReadQueryCaller): Promise<void> {
    const { perCaller, waitMs } = this.#limits
    const mine = this.#waiting.filter((one) => one.caller.id === caller.id).length
    if (mine >= perCaller * waitingForEach) throw this.#refused()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const late = setTimeout(() => {
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1)
      reject(this.#refused())
    }, waitMs)
    const go = () => {
      clearTimeout(late)
      resolve()
    }
    const waiting = { caller, go }
    this.#waiting.push(waiting)
    return promise
  }

  #refused(): Problem {
    this.#count('refused')
    return new Problem(
      'too_many_questions',
      'Too many filters, searches and lists run at the same time: wait for the running ones',
      { retryAfter: retrySeconds },
    )
  }

  /** Starts the first waiting read query that may run: callers at their limit let others pass. */
  #give({ id, tenant }: ReadQueryCaller): void {
    this.#all -= 1
    addCount(this.#byCaller, id, -1)
    addCount(this.#byTenant, tenant, -1)
    const next = this.#waiting.findIndex((one) => this.#mayRun(one.caller))
    if (next === -1) return
    const [waiting] = this.#waiting.splice(next, 1)
    this.#take(waiting!.caller)
    waiting!.go()
  }

  #count(outcome: Outcome): void {
    this.#ended.inc({ outcome })
  }
}
