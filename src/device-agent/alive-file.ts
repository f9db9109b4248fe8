import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bestEffort } from './best-effort.ts'
import type { Report } from './events.ts'
import type { IdentityStore } from './state.ts'
import { notifyWatchdog } from './watchdog/messages.ts'

/**
 * Reports regularly, and with each heartbeat, that the event loop of this process runs: to the watchdog by message,
 * and to operators in alive.json. The watchdog relies on the messages: on a full disk the file may be outdated.
 */
export function reportAlive({
  stateDir,
  version,
  identity,
  every,
}: {
  stateDir: string
  version: string
  identity: IdentityStore
  /** Milliseconds. */
  every: number
}) {
  const file = join(stateDir, 'alive.json')
  const startedAt = new Date().toISOString()
  let heartbeats = 0
  let heartbeatAt: string | null = null

  function show(): void {
    const interval = identity.load()?.heartbeatIntervalSeconds ?? 60
    void notifyWatchdog({ said: 'alive', version, heartbeats, interval })
    const aliveAt = new Date().toISOString()
    const runningSeconds = Math.floor(performance.now() / 1000)
    const record = { version, pid: process.pid, startedAt, runningSeconds, aliveAt, heartbeats, heartbeatAt }
    void bestEffort(() => {
      writeFileSync(`${file}.new`, `${JSON.stringify(record)}\n`, { mode: 0o600 })
      renameSync(`${file}.new`, file)
    })
  }

  const timer = setInterval(show, every)
  show()
  return {
    /** Wraps a report function to count heartbeats. */
    watch:
      (report: Report): Report =>
      (event) => {
        report(event)
        if (event.event !== 'heartbeat') return
        heartbeats += 1
        heartbeatAt = new Date().toISOString()
        show()
      },
    [Symbol.dispose]: () => clearInterval(timer),
  }
}
