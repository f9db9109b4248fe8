import { spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'
import { until } from '../daemon/process.ts'
import { binary, type Home } from './run.ts'

/** A long-running command, which ends with the test at the latest. */
export function follow(home: Home, args: string[], env: Record<string, string> = {}, input?: string) {
  const child = spawn(process.execPath, [binary, ...args], { env: { ...home.env, ...env }, stdio: 'pipe' })
  onTestFinished(() => void child.kill('SIGKILL'))
  if (input !== undefined) child.stdin.end(input)
  const said = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said.stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said.stderr += text
  })
  const ended = new Promise<number | null>((resolve) => child.on('close', (code) => resolve(code)))
  const rows = () =>
    said.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return {
    said,
    rows,
    has: (count: number) => until(() => rows().length >= count, 20_000),
    end: (signal: NodeJS.Signals = 'SIGINT') => {
      child.kill(signal)
      return ended
    },
  }
}
