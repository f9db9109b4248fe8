import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import type { Agent } from './agent.ts'
import type { Step } from './events.ts'

const maxPauseMs = 60_000
const maxRetryAfterMs = 3_600_000

/** A failure of the service or of the way to it; everything else that is thrown is a bug or an abort. */
type Failure = ApiError | NetworkError | TimeoutError

const isFailure = (error: unknown): error is Failure =>
  error instanceof ApiError || error instanceof NetworkError || error instanceof TimeoutError

/** No later try would succeed: the key, the tenant or the request itself is refused. */
export const isEnrollmentRefused = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  error.status >= 400 &&
  error.status < 500 &&
  error.status !== 408 &&
  error.status !== 429

/** The service is done with this machine. */
export const isAgentRefused = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  ['invalid_agent_credentials', 're_enrollment_required', 'device_decommissioned'].includes(error.code)

/**
 * Milliseconds to wait after the n-th failure in a row: 1 s doubling to 60 s, up to 30 % less by chance so
 * that a fleet does not come back all at once. What the service asks for in Retry-After is waited out, up
 * to an hour.
 */
export function backoffMs(failures: number, failure: Failure, random: () => number): number {
  const own = Math.min(maxPauseMs, 1000 * 2 ** (failures - 1)) * (1 - 0.3 * random())
  const asked = failure instanceof ApiError ? (failure.retryAfter ?? 0) * 1000 : 0
  return Math.max(own, Math.min(asked, maxRetryAfterMs) * (1 + 0.1 * random()))
}

/** Reports a failure that a later try may cure; throws every other error on. */
export function reportFailure(
  { report }: Agent,
  error: unknown,
  refuses: (error: unknown) => boolean,
  told: { step: Step; failures: number; pause: (failure: Failure) => number },
): number {
  if (!isFailure(error) || refuses(error)) throw error
  const { step, failures } = told
  const code =
    error instanceof ApiError ? error.code : error instanceof TimeoutError ? 'timeout' : 'unreachable'
  const pause = told.pause(error)
  const retryInSeconds = Math.round(pause / 100) / 10
  report({ event: 'failed', step, code, message: error.message, failures, retryInSeconds })
  return pause
}

/** Makes the attempt again and again until it succeeds or is refused for good. */
export async function retryUntilRefused<T>(
  agent: Agent,
  step: Step,
  attempt: () => Promise<T>,
  refuses: (error: unknown) => boolean,
): Promise<T> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await attempt()
    } catch (error) {
      const pause = (failure: Failure): number => backoffMs(failures, failure, agent.random)
      await agent.clock.sleep(reportFailure(agent, error, refuses, { step, failures, pause }), agent.signal)
    }
  }
}
