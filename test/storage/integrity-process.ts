import { readdirSync, readFileSync } from 'node:fs'
import { onTestFinished } from 'vitest'
import { until } from '../daemon/process.ts'

/** The integrity-check processes of this data directory. */
const running = (dataDir: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      const command = textOf(`/proc/${pid}/cmdline`)
      // The command line of a zombie process is empty.
      return command.includes('integrity-child') && command.includes(dataDir)
    })
    .map(Number)

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** Suspends the next integrity check of this database before it has a verdict. It ends with the test. */
export async function heldCheck(dataDir: string): Promise<{ pid: number; gone(): Promise<void> }> {
  const found = () => running(dataDir)[0]
  await until(() => {
    const pid = found()
    if (pid !== undefined) process.kill(pid, 'SIGSTOP')
    return pid !== undefined
  }, 20_000)
  const pid = found()!
  onTestFinished(() => {
    if (running(dataDir).includes(pid)) process.kill(pid, 'SIGKILL')
  })
  return { pid, gone: () => until(() => !running(dataDir).includes(pid), 10_000) }
}
