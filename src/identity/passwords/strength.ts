import { Worker } from 'node:worker_threads'
import { invalid } from '../../core/errors.ts'
import { packageModule } from '../../core/package-files.ts'
import { currentFairShareKey, FairQueue } from '../../storage/fair-queue.ts'
import type { StrengthRequest, StrengthResult } from './strength-thread.ts'

const passwordLength = { min: 8, max: 128 }

/** Out of 4; a password with a lower score falls to an offline guess within hours. */
const minScore = 3

/**
 * Refuses a password that is too short, too long or easily guessed (zxcvbn); `about` are words an attacker
 * would try first, such as the person's name and e-mail.
 * @throws invalid_request, saying what to change
 */
export async function checkStrength(password: string, path: string, about: readonly string[]): Promise<void> {
  const length = [...password].length
  const { min, max } = passwordLength
  if (length < min) throw tooWeak(path, `Password must be at least ${min} characters`)
  if (length > max) throw tooWeak(path, `Password must be at most ${max} characters`)
  const words = about
    .flatMap((text) => [text, ...text.split(/[^\p{L}\p{N}]+/u)])
    .filter((word) => word.length > 2)
  const { score, advice } = await estimator.estimate({ password, about: words })
  if (score >= minScore) return
  throw tooWeak(path, ['Password is too easy to guess.', ...advice].join(' '))
}

const tooWeak = (path: string, message: string) => invalid([{ path, message }], message)

type Estimate = { request: StrengthRequest } & PromiseWithResolvers<StrengthResult>

const script = packageModule('src/identity/passwords/strength-thread.ts')

/**
 * Estimates in a thread, one at a time: an estimate can take a tenth of a second, and the thread holds some 60 MB of
 * dictionaries, which take it a second to load. It ends when it was idle for a while. Callers take turns, so that a
 * stranger who registers a thousand times does not keep others from setting a password.
 */
export class StrengthEstimator {
  readonly #idleMs: number
  readonly #waiting = new FairQueue<Estimate>()
  #running: Estimate | undefined
  #thread: Worker | undefined
  #idle: NodeJS.Timeout | undefined

  constructor(idleMs = 30_000) {
    this.#idleMs = idleMs
  }

  get isLoaded(): boolean {
    return this.#thread !== undefined
  }

  /** @throws when the thread fails; the next estimate starts another one */
  estimate(request: StrengthRequest): Promise<StrengthResult> {
    const estimate = { request, ...Promise.withResolvers<StrengthResult>() }
    this.#waiting.push(currentFairShareKey(), estimate)
    this.#next()
    return estimate.promise
  }

  #next(): void {
    if (this.#running) return
    clearTimeout(this.#idle)
    this.#running = this.#waiting.shift()
    if (!this.#running) {
      this.#thread?.unref()
      this.#idle = setTimeout(() => this.#end(), this.#idleMs).unref()
      return
    }
    this.#thread ??= this.#start()
    this.#thread.ref()
    this.#thread.postMessage(this.#running.request)
  }

  #start(): Worker {
    const thread = new Worker(script)
    thread.on('message', (result: StrengthResult) => this.#settle(({ resolve }) => resolve(result)))
    thread.on('error', (error) => this.#fail(thread, error))
    thread.on('exit', () => this.#fail(thread, new Error('The thread for password strength ended')))
    return thread
  }

  #end(): void {
    const thread = this.#thread
    this.#thread = undefined
    void thread?.terminate()
  }

  /** An error is followed by the exit, which then finds another thread, or none. */
  #fail(thread: Worker, error: unknown): void {
    if (thread !== this.#thread) return
    this.#thread = undefined
    this.#settle(({ reject }) => reject(error))
  }

  #settle(settle: (running: Estimate) => void): void {
    const running = this.#running
    this.#running = undefined
    if (running) settle(running)
    this.#next()
  }
}

const estimator = new StrengthEstimator()
