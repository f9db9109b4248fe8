import { type ChildProcess, fork } from 'node:child_process'
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
type Reply = { code: number | 'late'; stdout: string; stderr: string }

/** A process that runs one command after another: most of what a command costs is the start of its process. */
export class CommandHost {
  readonly #cwd: string
  readonly #env: Env
  #process: ChildProcess | undefined
  /** Called when the command ends; with undefined when the process does. */
  #end: ((reply: Reply | undefined) => void) | undefined

  constructor({ cwd, env }: { cwd: string; env: Env }) {
    this.#cwd = cwd
    this.#env = { ...env }
  }

  /** Whether a command would do the same here as in a process of its own. Two at once have two processes. */
  canRun([command = '']: readonly string[], env: Env): boolean {
    const names = new Set([...Object.keys(env), ...Object.keys(this.#env)])
    const isLikeHere = [...names].every((name) => !readAtStart.test(name) || env[name] === this.#env[name])
    return this.#end === undefined && isLikeHere && !ownProcess.includes(command)
  }

  /** `longest`: milliseconds after which it is ended, and its code is null. */
  async run(argv: readonly string[], env: Env, longest: number): Promise<Ended> {
    this.#process ??= this.#start()
    const { promise, resolve } = Promise.withResolvers<Reply | undefined>()
    this.#end = resolve
    const set = Object.entries(env).filter(([, value]) => value !== undefined)
    this.#process.send({ argv, env: Object.fromEntries(set), longest })
    const reply = await promise
    this.#end = undefined
    if (!reply) throw new Error(`svc ${argv.join(' ')} ended the process`)
    if (reply.code !== 'late') return { ...reply, code: reply.code }
    this.close()
    return { ...reply, code: null }
  }

  close(): void {
    this.#process?.kill('SIGKILL')
    this.#process = undefined
    this.#end?.(undefined)
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
    host.on('message', (reply: Reply) => this.#end?.(reply))
    host.on('exit', () => {
      if (this.#process !== host) return
      this.#process = undefined
      this.#end?.(undefined)
    })
    host.unref()
    host.channel?.unref()
    return host
  }
}
