import { randomUUID } from 'node:crypto'
import { ApiError } from '../../core/client.ts'
import { backoffMs, type Fleet, newSimulatedAgent, pause } from './fleet.ts'
import type { Reply, RequestOptions } from './http-pool.ts'
import { inventoryOf, machineOf } from './machine.ts'
import { seededRandom } from './seeded-random.ts'

/** Concurrent enrollments: the service takes a while for each. */
const concurrency = 8

/**
 * Enrolls the missing agents. All of them wait when the service asks for a pause; a request that may have arrived is
 * repeated with its idempotency key. @throws ApiError when the key or its tenant is refused
 */
export async function enrollMissing(
  fleet: Fleet,
  enrollmentKey: () => Promise<string>,
  onWait: (ms: number) => void,
): Promise<void> {
  const { agents, plan, signal } = fleet
  const missing = Array.from({ length: plan.count }, (_, at) => at).filter((at) => agents[at] === undefined)
  if (missing.length === 0) return
  const key = await enrollmentKey()
  const refused = new AbortController()
  const patience = throttle(AbortSignal.any([signal, refused.signal]), onWait)
  let next = 0
  const work = async (): Promise<void> => {
    while (next < missing.length && !signal.aborted && !refused.signal.aborted) {
      await enroll(fleet, missing[next++]! + 1, key, patience)
    }
  }
  const lane = () =>
    work().catch((error: unknown) => {
      refused.abort()
      throw error
    })
  // Enrollments under way end first: the service has their agents, which would be lost.
  const ended = await Promise.allSettled(Array.from({ length: concurrency }, lane))
  for (const one of ended) if (one.status === 'rejected') throw one.reason
}

/** Delays requests after a Retry-After; `wait` returns false when everything stops. */
type Throttle = { take(ms: number): void; wait(): Promise<boolean> }

function throttle(signal: AbortSignal, onWait: (ms: number) => void): Throttle {
  let until = 0
  return {
    take(ms) {
      if (performance.now() + ms > until + 1000) onWait(ms)
      until = Math.max(until, performance.now() + ms)
    },
    async wait() {
      while (performance.now() < until) if (!(await pause(until - performance.now(), signal))) return false
      return !signal.aborted
    },
  }
}

async function enroll(fleet: Fleet, n: number, enrollmentKey: string, patience: Throttle): Promise<void> {
  const { plan, agents, tally } = fleet
  const { osBuild: _, ...machine } = machineOf(plan, n)
  const { hardware: hardwareInfo, network: networkInfo, disks, software } = inventoryOf(plan, n)
  const about = { isVirtual: true, virtualizationPlatform: 'kvm', agentVersion: plan.version }
  const body = { enrollmentKey, ...machine, ...about, hardwareInfo, networkInfo }
  const said = { body, idempotencyKey: randomUUID() }
  const reply = await sendUntilAccepted(fleet, n, patience, 'POST', '/agents/enroll', said)
  if (!reply) return
  const { agentId, authToken } = reply.body as { agentId: string; authToken: string }
  agents[n - 1] = newSimulatedAgent(n, agentId, authToken, plan.version)
  tally.counts.enrolled += 1
  const inventory = { token: authToken, body: { disks, software } }
  await sendUntilAccepted(fleet, n, patience, 'PUT', `/agents/${agentId}/inventory`, inventory)
}

/** The first successful reply; undefined when everything stops before. @throws ApiError for a refusal */
async function sendUntilAccepted(
  { wire, tally, plan }: Fleet,
  n: number,
  patience: Throttle,
  method: string,
  path: string,
  said: RequestOptions,
): Promise<Reply | undefined> {
  for (let failures = 1; await patience.wait(); failures++) {
    const reply = await wire.send(method, path, said)
    if (reply.status >= 200 && reply.status < 300) return reply
    if (isRefusal(reply)) throw new ApiError(reply.status, errorIn(reply))
    tally.recordFailure(reply.reason)
    patience.take(backoffMs(failures, reply.retryAfterMs, seededRandom(plan.seed, n, 'retry')))
  }
  return undefined
}

const isRefusal = ({ status }: Reply): boolean =>
  status >= 400 && status < 500 && status !== 408 && status !== 429

function errorIn({ body, status }: Reply) {
  const { error, code, requestId } = (body ?? {}) as { error?: string; code?: string; requestId?: string }
  return {
    error: error ?? `Unexpected answer: HTTP ${status}`,
    ...(code && { code }),
    ...(requestId && { requestId }),
  }
}
