import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const child = fileURLToPath(new URL('./command-host-child.js', import.meta.url))

/** They open a database, serve, or are not of src/cli/main.ts: the end of their process is a part of what they do. */
const ownProcess = [
  '--version',
  'agent',
  'complete',
  'db',
  'dev',
  'doctor',
  'secrets',
  'serve',
  'update-check',
]

/** What Node reads when it starts. */
const readAtStart = /^(NODE_|LD_|UV_|SSL_CERT_|LANG|LC_|TZ$)/

type Env = Record<string, string | undefined>
type Ended = { code: number | null; stdout: string; stderr: string }

/** A process that runs one command after another: most of what a command costs is the start of its process. */
export class CommandHost {
  readonly #cwd: string
  readonly #env: Env
  #process: ChildProcess | undefined
  #isBusy = false

  constructor({ cwd, env }: { cwd: string; env: Env }) {
    this.#cwd = cwd
    this.#env = { ...env }
  }

  /** Whether a command would do the same here as in a process of its own. Two at once have two processes. */
  canRun([command = '']: readonly string[], env: Env): boolean {
    const names = new Set([...Object.keys(env), ...Object.keys(this.#env)])
    const isLikeHere = [...names].every((name) => !readAtStart.test(name) || env[name] === this.#env[name])
    return !this.#isBusy && isLikeHere && !ownProcess.includes(command)
  }

  async run(argv: readonly string[], env: Env, longest: number): Promise<Ended> {
    this.#isBusy = true
    this.#process ??= this.#start()
    const host = this.#process
    const said = Object.entries(env).filter(([, value]) => value !== undefined)
    host.send({ argv, env: Object.fromEntries(said), longest })
    const [ended] = (await Promise.race([once(host, 'message'), once(host, 'exit')])) as [Ended | number]
    if (typeof ended !== 'object' || ended?.code === ('late' as unknown)) this.close()
    this.#isBusy = false
    if (typeof ended !== 'object') throw new Error(`svc ${argv.join(' ')} ended the process`)
    return { ...ended, code: typeof ended.code === 'number' ? ended.code : null }
  }

  close(): void {
    this.#process?.kill('SIGKILL')
    this.#process = undefined
  }

  #start(): ChildProcess {
    const env = this.#env as NodeJS.ProcessEnv
    // No terminal, and nothing to read.
    const host = fork(child, {
      cwd: this.#cwd,
      env,
      execArgv: [],
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    })
    host.stdout!.resume()
    host.unref()
    host.channel?.unref()
    return host
  }
}
