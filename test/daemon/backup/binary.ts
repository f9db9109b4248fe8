import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inject, onTestFinished } from 'vitest'
import { testSecrets } from '../../harness.ts'
import type { Place } from './filled.ts'

const binary = fileURLToPath(new URL('../../../bin/svc.js', import.meta.url))

/** Prints the most memory that the process had, in KiB, as its last line. */
const meter =
  'data:text/javascript,process.on("exit",()=>process._rawDebug("maxRSS "+process.resourceUsage().maxRSS))'

export type Ended = {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
  /** Most memory in KiB. */
  maxRss: number
}

/** The real `svc` in a process of its own, without the environment of the tests. */
export class SvcProcess {
  readonly ended: Promise<Ended>
  readonly #child: ChildProcess

  constructor(
    args: readonly string[],
    { dataDir, databaseUrl }: Place,
    env: Record<string, string> = testSecrets,
  ) {
    this.#child = spawn(process.execPath, ['--import', meter, binary, ...args], {
      cwd: inject('temporaryFolder'),
      env: {
        PATH: process.env.PATH,
        HOME: inject('temporaryFolder'),
        NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
        SVC_DATA_DIR: dataDir,
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
        ...env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let [stdout, stderr] = ['', '']
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    this.ended = new Promise((resolve, reject) => {
      this.#child.on('error', reject)
      this.#child.on('close', (code, signal) => {
        const maxRss = Number(/^maxRSS (\d+)$/m.exec(stderr)?.[1] ?? 0)
        resolve({ code, signal, stdout, stderr: stderr.replace(/^maxRSS \d+\n/m, ''), maxRss })
      })
    })
    onTestFinished(async () => {
      this.kill()
      await this.ended
    })
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  kill(signal: NodeJS.Signals = 'SIGKILL'): void {
    this.#child.kill(signal)
  }
}

export const svc = (
  args: readonly string[],
  place: Place,
  env: Record<string, string> = testSecrets,
): Promise<Ended> => new SvcProcess(args, place, env).ended
