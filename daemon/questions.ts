import { Problem } from '../src/core/errors.ts'
import { classifyDatabaseError } from '../src/storage/dialect.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import type { Metric } from './metrics.ts'

export type ReadQueryLimits = {
  /** Milliseconds one statement may take. */
  timeoutMs: number
  atOnce: number
  perCaller: number
  /** Milliseconds one more waits for its turn. */
  waitMs: number
}

type Waiting = { caller: string; go(): void }

/** So many of one caller wait, for each that may run: the next is refused at once. */
const waitingForEach = 8
/** After which another question may be asked. */
const retrySeconds = 2
/** After which the same question may fare better. */
const retrySlowSeconds = 30

const outcomes = ['answered', 'failed', 'too_slow', 'refused'] as const
type Outcome = (typeof outcomes)[number]

/**
 * What callers ask that may cost much: filters, searches, long lists. So many at once of one caller and of all, and
 * each for a limited time, so that nobody keeps the others from their answers.
 */
export class ReadQueryQueue {
  readonly #db: Db
  readonly #limits: ReadQueryLimits
  /** Callers with a question that runs or waits, no others. */
  readonly #running = new Map<string, number>()
  readonly #waiting: Waiting[] = []
  readonly #counts = new Map<Outcome, number>()
  #all = 0

  constructor(storage: Pick<Storage, 'questions'>, limits: ReadQueryLimits) {
    this.#db = storage.questions
    this.#limits = limits
  }

  /** @throws too_many_questions, question_too_slow */
  async ask<T>(caller: string, work: (db: Db) => Promise<T>): Promise<T> {
    if (this.#mayRun(caller)) this.#take(caller)
    else await this.#turn(caller)
    try {
      const answer = await work(this.#db)
      this.#count('answered')
      return answer
    } catch (error) {
      if (classifyDatabaseError(error) !== 'too slow') {
        this.#count('failed')
        throw error
      }
      this.#count('too_slow')
      const message = `The answer took longer than ${this.#limits.timeoutMs / 1000} s: ask about fewer devices, or for less of each`
      throw new Problem('question_too_slow', message, { retryAfter: retrySlowSeconds })
    } finally {
      this.#give(caller)
    }
  }

  metrics(): Metric[] {
    return [
      {
        name: 'svc_questions_total',
        kind: 'counter',
        help: 'Filters, searches and long lists that callers asked for, by how it ended.',
        values: outcomes.map((outcome) => ({ labels: { outcome }, value: this.#counts.get(outcome) ?? 0 })),
      },
      {
        name: 'svc_questions_at_once',
        kind: 'gauge',
        help: 'Of them, those that run and those that wait for their turn.',
        values: [
          { labels: { state: 'running' }, value: this.#all },
          { labels: { state: 'waiting' }, value: this.#waiting.length },
        ],
      },
    ]
  }

  #mayRun(caller: string): boolean {
    return this.#all < this.#limits.atOnce && (this.#running.get(caller) ?? 0) < this.#limits.perCaller
  }

  #take(caller: string): void {
    this.#all += 1
    this.#running.set(caller, (this.#running.get(caller) ?? 0) + 1)
  }

  #turn(caller: string): Promise<void> {
    const { perCaller, waitMs } = this.#limits
    const mine = this.#waiting.filter((one) => one.caller === caller).length
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
      'Too many filters, searches and lists are asked for at once: wait for those that run',
      { retryAfter: retrySeconds },
    )
  }

  /** The next is the first of those who may: whoever waits behind their own questions lets others pass. */
  #give(caller: string): void {
    this.#all -= 1
    const left = this.#running.get(caller)! - 1
    if (left === 0) this.#running.delete(caller)
    else this.#running.set(caller, left)
    const next = this.#waiting.findIndex((one) => this.#mayRun(one.caller))
    if (next === -1) return
    const [waiting] = this.#waiting.splice(next, 1)
    this.#take(waiting!.caller)
    waiting!.go()
  }

  #count(outcome: Outcome): void {
    this.#counts.set(outcome, (this.#counts.get(outcome) ?? 0) + 1)
  }
}
