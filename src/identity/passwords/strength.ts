import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { invalid } from '../../core/errors.ts'
import { packageModule } from '../../core/package-files.ts'
import type { StrengthRequest, StrengthResult } from './strength-thread.ts'

const script = packageModule('src/identity/passwords/strength-thread.ts')

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
  const { score, advice } = await estimate({ password, about: words })
  if (score >= minScore) return
  throw tooWeak(path, ['Password is too easy to guess.', ...advice].join(' '))
}

const tooWeak = (path: string, message: string) => invalid([{ path, message }], message)

let lastEstimate: Promise<unknown> = Promise.resolve()

/**
 * The estimator loads some 60 MB of dictionaries and can run for long: it gets a thread of its own that ends
 * with the result. One runs at a time, so that many requests cannot fill the memory.
 */
function estimate(question: StrengthRequest): Promise<StrengthResult> {
  const answer = lastEstimate.then(async () => {
    const worker = new Worker(script, { workerData: question })
    const [reply] = (await once(worker, 'message')) as [StrengthResult]
    return reply
  })
  lastEstimate = answer.catch(() => {})
  return answer
}
