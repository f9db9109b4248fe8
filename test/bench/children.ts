import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/*
 * Everything the benchmark starts or writes goes through here, so that nothing is left behind: processes end
 * by their id and folders are removed, also after a failure and on Ctrl-C.
 */

export const root = fileURLToPath(new URL('../../', import.meta.url))
export const fromHere = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

const running = new Set<ChildProcess>()
const folders = new Set<string>()
const endings: (() => Promise<void>)[] = []

export function temporaryFolder(name: string): string {
  checkGoingOn()
  const folder = mkdtempSync(join(tmpdir(), `svc-bench-${name}-`))
  folders.add(folder)
  return folder
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
  folders.delete(folder)
}

/** Runs `end` when the benchmark ends, however it ends. */
export function atEnd(end: () => Promise<void>): void {
  endings.push(end)
}

export function start(
  args: readonly string[],
  options: { env?: Record<string, string>; stderr?: number | 'inherit' | 'ignore'; ipc?: boolean } = {},
): ChildProcess {
  checkGoingOn()
  const { env = bareEnv(), stderr = 'inherit', ipc = false } = options
  const stdio = ['ignore', ipc ? 'inherit' : 'pipe', stderr, ...(ipc ? (['ipc'] as const) : [])] as const
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: [...stdio] })
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

/** SIGTERM, and SIGKILL when that is not enough. */
export async function stop(child: ChildProcess, patience = 12_000): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), patience)
  await gone
  clearTimeout(timer)
}

/** The first line on a child's stdout that `pick` makes something of. */
export async function firstLine<T>(
  child: ChildProcess,
  pick: (line: string) => T | undefined,
  patience = 30_000,
): Promise<T> {
  const lines = createInterface({ input: child.stdout! })
  const late = setTimeout(() => lines.close(), patience)
  try {
    for await (const line of lines) {
      const picked = pick(line)
      if (picked !== undefined) return picked
    }
  } finally {
    clearTimeout(late)
    lines.close()
    child.stdout?.resume()
  }
  throw new Error(`${child.spawnargs.slice(1).join(' ')} said nothing`)
}

/** What a program needs to run, and none of this machine's settings. */
export function bareEnv(more: Record<string, string> = {}): Record<string, string> {
  const { PATH = '', TMPDIR } = process.env
  return { PATH, ...(TMPDIR && { TMPDIR }), NODE_ENV: 'production', NO_COLOR: '1', ...more }
}

/** Ends and removes everything, once; nothing can be started after that. */
export function endAll(): Promise<void> {
  ending ??= end()
  return ending
}

let ending: Promise<void> | undefined

async function end(): Promise<void> {
  await Promise.all([...running].map((child) => stop(child)))
  // Ctrl-C ends Postgres too, and then nobody answers.
  for (const one of endings.reverse()) await Promise.race([one(), sleep(5000)])
  for (const folder of folders) removeFolder(folder)
}

function checkGoingOn(): void {
  if (ending) throw new Error('The benchmark was ended')
}

// The last resort, when something else ends this process.
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})
