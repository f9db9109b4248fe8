import { setTimeout as sleep } from 'node:timers/promises'
import { ApiError } from '../core/client.ts'
import { printNote } from './stderr-notes.ts'

const maxAttempts = 5

/**
 * For commands that make many requests, which may exceed the rate limit of their caller: waits as `Retry-After` says, up
 * to four times for one request.
 */
export async function retryWhenLimited<T>(send: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send()
    } catch (error) {
      const wait = error instanceof ApiError && error.status === 429 ? error.retryAfter : undefined
      if (wait === undefined || attempt === maxAttempts) throw error
      printNote(`Rate limited: continuing in ${wait} s`)
      await sleep(wait * 1000)
    }
  }
}
