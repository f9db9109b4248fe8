import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import type { MonotonicClock } from './clock.ts'
import type { Report, Step } from './events.ts'

export const maxPauseMs = 60_000
const maxRetryAfterMs = 3_600_000

/** A file that has to be on disk before the next step cannot be written, as on a full disk. */
export class NotStoredError extends Error {
  constructor(file: string, cause: NodeJS.ErrnoException) {
    super(`${file} could not be written: ${cause.message}`, { cause })
  }
}

type ServiceFailure = ApiError | NetworkError | TimeoutError

/** Whether the service or the network is at fault. */
export const isServiceFailure = (error: unknown): error is ServiceFailure =>
  error instanceof ApiError || error instanceof NetworkError || error instanceof TimeoutError

/** A failure of the service, the network or the disk; anything else that is thrown is a bug or an abort. */
type Failure = ServiceFailure | NotStoredError

const isFailure = (error: unknown): error is Failure =>
  isServiceFailure(error) || error instanceof NotStoredError

function codeOf(failure: Failure): string {
  if (failure instanceof ApiError) return failure.code
  if (failure instanceof NotStoredError) return 'not_stored'
  return failure instanceof TimeoutError ? 'timeout' : 'unreachable'
}

/** A later attempt would fail as well: the key, the tenant or the request itself is refused. */
export const isEnrollmentRefused = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  error.status >= 400 &&
  error.status < 500 &&
  error.status !== 408 &&
  error.status !== 429

/** The service permanently refuses this machine. */
export const isAgentRefused = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  ['invalid_agent_credentials', 're_enrollment_required', 'device_decommissioned', 'machine_copied'].includes(
    error.code,
  )

/**
 * Milliseconds to wait after the n-th consecutive failure: 1 s doubling to 60 s, less up to 30 % of jitter, so that a
 * fleet does not reconnect all at the same time.
 */
export const pauseMs = (failures: number, random: () => number): number =>
  Math.min(maxPauseMs, 1000 * 2 ** (failures - 1)) * (1 - 0.3 * random())

/** The same, or as long as Retry-After says, up to an hour. */
export function backoffMs(failures: number, failure: Failure, random: () => number): number {
  const own = pauseMs(failures, random)
  const asked = failure instanceof ApiError ? (failure.retryAfter ?? 0) * 1000 : 0
  return Math.max(own, Math.min(asked, maxRetryAfterMs) * (1 + 0.1 * random()))
}

/** What retries take of an agent. */
type Retrying = { report: Report; clock: MonotonicClock; random: () => number; signal: AbortSignal }

/** Reports a failure that a retry may cure, and returns the pause; rethrows any other error. */
export function reportFailure(
  { report }: Pick<Retrying, 'report'>,
  error: unknown,
  refuses: (error: unknown) => boolean,
  details: { step: Step; failures: number; pause: (failure: Failure) => number },
): number {
  if (!isFailure(error) || refuses(error)) throw error
  const { step, failures } = details
  const code = codeOf(error)
  const pause = details.pause(error)
  const retryInSeconds = Math.round(pause / 100) / 10
  report({ event: 'failed', step, code, message: error.message, failures, retryInSeconds })
  return pause
}

/** Repeats the attempt until it succeeds or is refused permanently. */
export async function retryUntilRefused<T>(
  agent: Retrying,
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
