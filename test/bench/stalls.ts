// Loaded into the service (--import): tells on SIGUSR2 for how long its event loop stood still at most.
import { writeFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { isMainThread } from 'node:worker_threads'

const resolution = 2

if (isMainThread && process.env.STALLS_FILE) {
  const file = process.env.STALLS_FILE
  const delays = monitorEventLoopDelay({ resolution })
  delays.enable()
  process.on('SIGUSR2', () => {
    // What was measured holds the pause between two looks as well.
    writeFileSync(file, String(Math.max(0, delays.max / 1e6 - resolution)))
    delays.reset()
  })
}
