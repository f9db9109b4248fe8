import { readdirSync, readFileSync } from 'node:fs'
import { onTestFinished } from 'vitest'
import { until } from '../daemon/process.ts'

/** The processes that look at the database of this directory now. */
const running = (dataDir: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      const command = textOf(`/proc/${pid}/cmdline`)
      // Of one that has ended, and that nobody has asked for yet, no command is left.
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

/** Stops the next process that looks at this database, before it has an answer. It ends with the test. */
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
