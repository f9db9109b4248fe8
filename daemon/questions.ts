import { type Counter, Gauge, type Registry } from 'prom-client'
import { Problem } from '../src/core/errors.ts'
import { classifyDatabaseError } from '../src/storage/dialect.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { addCounter } from './metrics.ts'

export type ReadQueryLimits = {
  /** Milliseconds one statement may take. */
  timeoutMs: number
  atOnce: number
  perTenant: number
  perCaller: number
  /** Milliseconds one more waits for its turn. */
  waitMs: number
}

/** Who asks: one of those in a tenant. */
export type Asker = { caller: string; tenant: string }

type Waiting = { asker: Asker; go(): void }

/** So many of one caller wait, for each that may run: the next is refused at once. */
const waitingForEach = 8
/** After which another question may be asked. */
const retrySeconds = 2
/** After which the same question may fare better. */
const retrySlowSeconds = 30

const outcomes = ['answered', 'failed', 'too_slow', 'refused'] as const
type Outcome = (typeof outcomes)[number]

/**
 * What callers ask that may cost much: filters, searches, long lists. So many at once of one caller, of one tenant and of all,
 * and each for a limited time, so that nobody keeps the others from their answers, not with many users and keys either.
 */
export class ReadQueryQueue {
  readonly #db: Db
  readonly #limits: ReadQueryLimits
  /** How many run, of those with one that does and no others. */
  readonly #byCaller = new Map<string, number>()
  readonly #byTenant = new Map<string, number>()
  readonly #waiting: Waiting[] = []
  readonly #ended: Counter<'outcome'>
  #all = 0

  constructor(storage: Pick<Storage, 'questions'>, limits: ReadQueryLimits, metrics: Registry) {
    this.#db = storage.questions
    this.#limits = limits
    const ended = {
      name: 'svc_questions_total',
      help: 'Filters, searches and long lists that callers asked for, by how it ended.',
    }
    this.#ended = addCounter(metrics, ended, 'outcome', outcomes)
    const atOnce: Gauge<'state'> = new Gauge({
      name: 'svc_questions_at_once',
      help: 'Of them, those that run and those that wait for their turn.',
      labelNames: ['state'],
      registers: [metrics],
      collect: () => {
        atOnce.set({ state: 'running' }, this.#all)
        atOnce.set({ state: 'waiting' }, this.#waiting.length)
      },
    })
  }

  /** @throws too_many_questions, question_too_slow */
  async ask<T>(asker: Asker, work: (db: Db) => Promise<T>): Promise<T> {
    if (this.#mayRun(asker)) this.#take(asker)
    else await this.#turn(asker)
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
      this.#give(asker)
    }
  }

  #mayRun({ caller, tenant }: Asker): boolean {
    const { atOnce, perTenant, perCaller } = this.#limits
    return (
      this.#all < atOnce &&
      (this.#byTenant.get(tenant) ?? 0) < perTenant &&
      (this.#byCaller.get(caller) ?? 0) < perCaller
    )
  }

  #take({ caller, tenant }: Asker): void {
    this.#all += 1
    add(this.#byCaller, caller, 1)
    add(this.#byTenant, tenant, 1)
  }

  #turn(asker: Asker): Promise<void> {
    const { perCaller, waitMs } = this.#limits
    const mine = this.#waiting.filter((one) => one.asker.caller === asker.caller).length
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
    const waiting = { asker, go }
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
  #give({ caller, tenant }: Asker): void {
    this.#all -= 1
    add(this.#byCaller, caller, -1)
    add(this.#byTenant, tenant, -1)
    const next = this.#waiting.findIndex((one) => this.#mayRun(one.asker))
    if (next === -1) return
    const [waiting] = this.#waiting.splice(next, 1)
    this.#take(waiting!.asker)
    waiting!.go()
  }

  #count(outcome: Outcome): void {
    this.#ended.inc({ outcome })
  }
}

function add(counts: Map<string, number>, name: string, change: 1 | -1): void {
  const count = (counts.get(name) ?? 0) + change
  if (count === 0) counts.delete(name)
  else counts.set(name, count)
}
