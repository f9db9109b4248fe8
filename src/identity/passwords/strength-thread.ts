import { parentPort } from 'node:worker_threads'
import { ZxcvbnFactory } from '@zxcvbn-ts/core'
import { adjacencyGraphs, dictionary as common } from '@zxcvbn-ts/language-common'
import { dictionary as english, translations } from '@zxcvbn-ts/language-en'
import { lowerThreadPriority } from '../../core/thread-priority.ts'

export type StrengthRequest = { password: string; about: readonly string[] }

/** `score`: 0 (guessed at once) to 4. */
export type StrengthResult = { score: number; advice: string[] }

/** The work grows with the square of the length; characters beyond this can only make a password stronger. */
const maxEstimatedLength = 64

lowerThreadPriority()
const dictionary = { ...common, ...english }
const estimator = new ZxcvbnFactory({ translations, graphs: adjacencyGraphs, dictionary })

parentPort?.on('message', ({ password, about }: StrengthRequest) => {
  const words = [...about, 'svc', 'service']
  const { score, feedback } = estimator.check(password.slice(0, maxEstimatedLength), words)
  const advice = [feedback.warning, ...feedback.suggestions].filter((text) => text !== null)
  parentPort?.postMessage({ score, advice } satisfies StrengthResult)
})
