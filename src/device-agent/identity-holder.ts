import { bestEffort } from './best-effort.ts'
import { isFileError } from './durable.ts'
import { NotStoredError } from './retry.ts'
import type { Identity, IdentityStore } from './state.ts'

/** The current identity of the agent: interval and tokens change while it runs. */
export function identityHolder(store: IdentityStore, enrolled: Identity) {
  let identity = enrolled
  const listeners = new Set<() => void>()
  return {
    current: (): Identity => identity,
    /** Written to disk before it takes effect. @throws NotStoredError when it cannot be written */
    save(change: Partial<Identity>): void {
      const next = { ...identity, ...change }
      try {
        store.save(next)
      } catch (error) {
        throw isFileError(error) ? new NotStoredError(store.file, error) : error
      }
      const renewed = next.authToken !== identity.authToken
      identity = next
      if (renewed) for (const tell of listeners) tell()
    },
    /** Takes effect even when it cannot be written; then it lasts until the agent ends. */
    async change(change: Partial<Identity>): Promise<void> {
      identity = { ...identity, ...change }
      await bestEffort(() => store.save(identity))
    },
    /** Calls the listener after each change of the token, until the signal aborts. */
    onNewToken(listener: () => void, signal: AbortSignal): void {
      listeners.add(listener)
      signal.addEventListener('abort', () => listeners.delete(listener), { once: true })
    },
  }
}
export type IdentityHolder = ReturnType<typeof identityHolder>
