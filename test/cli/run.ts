import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isSoak } from '../depth.ts'
import { CommandHost } from './command-host.ts'

export const binary = fileURLToPath(new URL('../../bin/svc.js', import.meta.url))

export type Result = { code: number | null; stdout: string; stderr: string; ms: number }

type RunOptions = {
  input?: string
  /** undefined removes a variable. */
  env?: Record<string, string | undefined>
  /** Sends this signal once standard error has the text. */
  signalAfter?: { text: string; signal: NodeJS.Signals }
}

const longest = 25_000

/** A temporary home for one test, without configuration, keychain, color and terminal. */
export class Home {
  readonly path = mkdtempSync(join(tmpdir(), 'svc-cli-'))
  readonly config = join(this.path, 'config')
  readonly env: Record<string, string>
  #host: CommandHost | undefined

  constructor(env: Record<string, string> = {}) {
    this.env = {
      PATH: process.env.PATH ?? '',
      HOME: this.path,
      SVC_CONFIG_DIR: this.config,
      NODE_COMPILE_CACHE: join(tmpdir(), 'svc-cli-compiled'),
      ...env,
    }
  }

  /** Runs the real binary; in `npm test` one command after another in one process, where it would do the same. */
  async run(args: string[], options: RunOptions = {}): Promise<Result> {
    const env = { ...this.env, ...options.env }
    const { input, signalAfter } = options
    this.#host ??= new CommandHost({ cwd: this.path, env: this.env })
    if (isSoak || input !== undefined || signalAfter || !this.#host.canRun(args, env))
      return start(process.execPath, [binary, ...args], env, this.path, options)
    const started = performance.now()
    const ended = await this.#host.run(args, env, longest)
    return { ...ended, ms: performance.now() - started }
  }

  /** Runs it at a terminal, and types each answer after its question. All output is in stdout. */
  terminal(
    args: string[],
    { columns = 80, rows = 40, answers = [], env = {} }: TerminalOptions = {},
  ): Promise<Result> {
    const quoted = [process.execPath, binary, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`)
    const line = `stty cols ${columns} rows ${rows}; exec ${quoted.join(' ')}`
    // Unless told, nobody is there to quit a pager.
    const at = { ...this.env, TERM: 'xterm-256color', PAGER: 'cat', ...env }
    return start('script', ['-qefc', line, '/dev/null'], at, this.path, { answers })
  }

  /** Writes a context that is signed in at `url`, with its session in a file. */
  signIn(url: string, session: object = {}, context: object = {}): void {
    const place = join(this.config, 'sessions')
    spawnSync('mkdir', ['-p', place])
    const contexts = { test: { url, store: 'file', ...context } }
    this.write('config/config.json', JSON.stringify({ version: 1, current: 'test', contexts, store: 'file' }))
    const fresh = { url, accessToken: 'access-1', refreshToken: 'refresh-1', expiresAt: Date.now() + 900_000 }
    this.write('config/sessions/test.json', JSON.stringify({ ...fresh, ...session }))
  }

  write(name: string, text: string): string {
    const path = join(this.path, name)
    writeFileSync(path, text, { mode: 0o600 })
    return path
  }

  read(name: string): string {
    return readFileSync(join(this.path, name), 'utf8')
  }

  json<T = Record<string, unknown>>(name: string): T {
    return JSON.parse(this.read(name)) as T
  }

  mode(name: string): string {
    return (statSync(join(this.path, name)).mode & 0o777).toString(8)
  }

  remove(): void {
    this.#host?.close()
    // What a command left in the background may still write there.
    rmSync(this.path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  }
}

type TerminalOptions = {
  columns?: number
  rows?: number
  answers?: [after: string, typed: string][]
  env?: Record<string, string | undefined>
}

/** The reason why terminals cannot be tested on this machine, if any. */
export const noTerminal = spawnSync('script', ['--version']).error && 'script (bsdutils) is not installed'

export function start(
  command: string,
  args: string[],
  env: Record<string, string | undefined>,
  cwd: string,
  options: RunOptions & { answers?: [string, string][]; longest?: number } = {},
): Promise<Result> {
  const started = performance.now()
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { env: env as NodeJS.ProcessEnv, cwd, stdio: 'pipe' })
    const timer = setTimeout(() => child.kill('SIGKILL'), options.longest ?? longest)
    const answers = [...(options.answers ?? [])]
    let { signalAfter } = options
    let stdout = ''
    let stderr = ''
    let from = 0
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
      const [next] = answers
      if (!next || !stdout.includes(next[0], from)) return
      answers.shift()
      from = stdout.length
      setTimeout(() => child.stdin.write(next[1]), 150)
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
      if (!signalAfter || !stderr.includes(signalAfter.text)) return
      child.kill(signalAfter.signal)
      signalAfter = undefined
    })
    child.stdin.on('error', () => {})
    child.on('error', reject)
    child.on('close', (code) => {
      clearTimeout(timer)
      resolve({ code, stdout, stderr, ms: performance.now() - started })
    })
    if (options.answers === undefined) child.stdin.end(options.input ?? '')
  })
}

/** The one line of JSON that a failure leaves on standard error. */
export function failureOf({ stderr }: Result): {
  code: string
  message: string
  status: number | null
  requestId: string | null
  hint: string | null
} {
  const lines = stderr.trim().split('\n')
  return (JSON.parse(lines.at(-1) ?? '') as { error: ReturnType<typeof failureOf> }).error
}
