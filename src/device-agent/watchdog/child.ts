import { type ChildProcess, spawn } from 'node:child_process'
import type { Executable } from '../update/executable.ts'
import { type Message, type ProcessRole, parseMessage, roleEnv } from './messages.ts'

/** How a process ended; `error` says why it could not be started. */
export type ExitStatus = { code: number | null; signal: NodeJS.Signals | null; error?: NodeJS.ErrnoException }

/** Time from SIGTERM to SIGKILL. */
const killAfterMs = 10_000

/** A process of this program that a watchdog supervises. */
export class Child {
  readonly pid: number | undefined
  readonly ended: Promise<ExitStatus>
  readonly #process: ChildProcess | undefined
  readonly #grouped: boolean
  #listener: (message: Message) => void = () => {}

  /** `env` is the environment without the role. @throws nothing: a process that cannot be started counts as ended */
  constructor(again: Executable['restartCommand'], part: ProcessRole, env: NodeJS.ProcessEnv) {
    // A binary on trial may start other processes: a process group allows killing all of them.
    this.#grouped = part === 'trial' && process.platform !== 'win32'
    try {
      const child = spawn(again.file, again.args, {
        stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
        env: { ...env, ...roleEnv(part) },
        detached: this.#grouped,
      })
      this.#process = child
      this.pid = child.pid
      this.ended = new Promise((resolve) => {
        child.once(
          'error',
          (error) => child.pid === undefined && resolve({ code: null, signal: null, error }),
        )
        child.once('exit', (code, signal) => resolve({ code, signal }))
      })
      child.on('message', (said) => {
        const message = parseMessage(said)
        if (message) this.#listener(message)
      })
    } catch (error) {
      this.ended = Promise.resolve({ code: null, signal: null, error: error as NodeJS.ErrnoException })
    }
  }

  onMessage(listener: (message: Message) => void): void {
    this.#listener = listener
  }

  /** Sends SIGTERM, then SIGKILL. */
  async stop(): Promise<ExitStatus> {
    this.#process?.kill('SIGTERM')
    const timer = setTimeout(() => this.kill(), killAfterMs)
    try {
      return await this.ended
    } finally {
      clearTimeout(timer)
      // Kills the rest of its process group.
      if (this.#grouped) this.kill()
    }
  }

  kill(): void {
    try {
      if (this.#grouped && this.pid !== undefined) process.kill(-this.pid, 'SIGKILL')
      else this.#process?.kill('SIGKILL')
    } catch {
      // It no longer exists.
    }
  }
}

/** As text: `exit code 3`, `SIGSEGV`, `ENOEXEC`. */
export function describeExit({ code, signal, error }: ExitStatus): string {
  if (error) return `it cannot be started: ${error.code ?? error.message}`
  return signal === null ? `exit code ${code}` : `${signal}`
}
