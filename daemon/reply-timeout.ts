import type { FastifyInstance } from 'fastify'
import { budgetOwner } from './bodies.ts'
import type { BodyBudget } from './body-budget.ts'

/** What is not larger lies in the buffers of the system as soon as it is sent. */
const small = 64 * 1024

/** How long nothing may be taken of a reply, and at what rate it is taken at least. */
type Patience = { idleMs: number; bytesPerSecond: number }
const patience: Patience = { idleMs: 60_000, bytesPerSecond: 16 * 1024 }

/**
 * Bounds what replies take in memory while their readers take them. Whoever asks for much and reads slowly is refused
 * the next reply, and hung up on in the end: a connection that nobody reads from would hold what it is to get for ever.
 */
export function limitSlowReaders(
  app: FastifyInstance,
  budget: BodyBudget,
  { idleMs, bytesPerSecond } = patience,
): void {
  app.addHook('onSend', (request, reply, payload, done) => {
    const bytes = typeof payload === 'string' ? Buffer.byteLength(payload) : 0
    if (isStream(payload)) {
      // One that waits for more to be sent is nobody's fault.
      reply.raw.setTimeout(idleMs, () => {
        if (reply.raw.writableLength > 0) reply.raw.destroy()
      })
    }
    // Of who hung up before nothing more is heard.
    if (bytes > small && !reply.raw.destroyed) {
      const held = budget.hold(budgetOwner(request))
      try {
        // What was changed is told: who does not hear of it would do it again.
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
