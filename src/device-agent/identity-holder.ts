import { bestEffort } from './best-effort.ts'
import type { Identity, IdentityStore } from './state.ts'

/** Who this agent is at the moment: interval and tokens change while it runs. */
export function identityHolder(store: IdentityStore, enrolled: Identity) {
  let identity = enrolled
  const listeners = new Set<() => void>()
  return {
    current: (): Identity => identity,
    /** On the disk before it counts. @throws when it cannot be written */
    save(change: Partial<Identity>): void {
      const next = { ...identity, ...change }
      store.save(next)
      const renewed = next.authToken !== identity.authToken
      identity = next
      if (renewed) for (const tell of listeners) tell()
    },
    /** Counts until the agent ends where it cannot be written. */
    async change(change: Partial<Identity>): Promise<void> {
      identity = { ...identity, ...change }
      await bestEffort(() => store.save(identity))
    },
    /** Calls back when the token is another one, until the signal aborts. */
    onNewToken(listener: () => void, signal: AbortSignal): void {
      listeners.add(listener)
      signal.addEventListener('abort', () => listeners.delete(listener), { once: true })
    },
  }
}
export type IdentityHolder = ReturnType<typeof identityHolder>
