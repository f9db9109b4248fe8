import type { FastifyInstance } from 'fastify'
import { budgetOwner } from './bodies.ts'
import type { BodyBudget } from './body-budget.ts'

/** Smaller replies fit into the buffers of the operating system. */
const small = 64 * 1024

/** Longest time without progress, and lowest rate, of a client that receives a reply. */
type Patience = { idleMs: number; bytesPerSecond: number }
const patience: Patience = { idleMs: 60_000, bytesPerSecond: 16 * 1024 }

/**
 * Bounds the memory of replies while clients receive them. A client that requests much and reads slowly is refused
 * the next reply, and finally disconnected: a connection that is never read would keep its reply in memory forever.
 */
export function limitSlowReaders(
  app: FastifyInstance,
  budget: BodyBudget,
  { idleMs, bytesPerSecond } = patience,
): void {
  app.addHook('onSend', (request, reply, payload, done) => {
    const isWhole = typeof payload === 'string' || Buffer.isBuffer(payload)
    const bytes = isWhole ? Buffer.byteLength(payload) : 0
    if (isStream(payload)) {
      // A client that has received everything sent so far is not slow.
      reply.raw.setTimeout(idleMs, () => {
        if (reply.raw.writableLength > 0) reply.raw.destroy()
      })
    }
    // A client that is already disconnected emits no further event.
    if (bytes > small && !reply.raw.destroyed) {
      const held = budget.hold(budgetOwner(request))
      try {
        // Replies to changes are sent even without room: otherwise the client would repeat the change.
        held.to(bytes, { anyway: request.method !== 'GET' })
      } catch (problem) {
        return done(problem as Error)
      }
      const late = setTimeout(() => reply.raw.destroy(), idleMs + (bytes / bytesPerSecond) * 1000)
      reply.raw.once('close', () => {
        clearTimeout(late)
        held.release()
      })
    }
    done(null, payload)
  })
}

const isStream = (payload: unknown): boolean =>
  payload !== null && typeof payload === 'object' && 'pipe' in payload
