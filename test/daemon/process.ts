import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { inject, onTestFinished } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { temporaryFolder } from '../databases.ts'
import { adminEmail, adminPassword, noLimits, testSecrets } from '../harness.ts'

const binary = fileURLToPath(new URL('../../bin/svc.js', import.meta.url))

export type Place = { dataDir: string; databaseUrl?: string | undefined }
type Ended = { code: number | null; signal: NodeJS.Signals | null }
type Options = {
  args?: string[]
  env?: Record<string, string>
  stderr?: number
  /** Another build of the program. */
  program?: string
  /** The beginning of a command that runs the rest of it somewhere else. */
  within?: readonly string[]
}

/** The environment of a service in a test, unless the test is about a missing variable. */
export const serviceEnv = {
  ...testSecrets,
  // What the services of tests in this process derive: each start would warn of one that is not set.
  AUDIT_SIGNING_KEY: readConfig({ ...testSecrets, SVC_DATA_DIR: '/nowhere' }).secrets.auditSigning,
  SVC_ADMIN_EMAIL: adminEmail,
  SVC_ADMIN_PASSWORD: adminPassword,
}

/** The real `svc serve`, in its own process without the environment of the tests. */
export class ServeProcess {
  stdout = ''
  stderr = ''
  readonly ended: Promise<Ended>
  readonly #child

  constructor(
    { dataDir, databaseUrl }: Place,
    { args = [], env = serviceEnv, stderr, program = binary, within = [] }: Options = {},
  ) {
    const [command = '', ...words] = [...within, process.execPath, program, 'serve', ...args]
    this.#child = spawn(command, words, {
      cwd: inject('temporaryFolder'),
      env: {
        PATH: process.env.PATH,
        HOME: inject('temporaryFolder'),
        NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
        SVC_DATA_DIR: dataDir,
        PORT: '0',
        ...noLimits,
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
        ...env,
      },
      stdio: ['ignore', 'pipe', stderr ?? 'pipe'],
    })
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text
    })
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
    })
    this.ended = new Promise((resolve, reject) => {
      this.#child.on('error', reject)
      this.#child.on('close', (code, signal) => resolve({ code, signal }))
    })
    this.#endWithTheTest()
  }

  get pid(): number {
    return this.#child.pid!
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Its address, once it listens. */
  async listening(ms = 20_000): Promise<string> {
    const line = () => /(?:listening on |"url":")(http:[^\s"]+)/.exec(this.stdout)?.[1]
    await until(() => line() !== undefined || !this.running, ms)
    const url = line()
    if (url === undefined) throw new Error(`svc serve did not start: ${this.stderr}`)
    return url
  }

  async stop(): Promise<Ended> {
    this.kill('SIGTERM')
    return this.ended
  }

  #endWithTheTest(): void {
    try {
      onTestFinished(async () => {
        this.kill('SIGKILL')
        await this.ended
      })
    } catch {
      // Started from beforeAll: the caller ends it.
    }
  }
}

/** A start that is expected to fail; returns how it ended and what it printed. */
export async function failedStart(
  place: Partial<Place>,
  options: Options = {},
): Promise<Ended & ServeProcess> {
  const dataDir = place.dataDir ?? (await temporaryFolder())
  const service = new ServeProcess({ ...place, dataDir }, options)
  await until(() => !service.running || service.stdout !== '', 20_000)
  if (service.running) throw new Error(`svc serve did start: ${service.stdout}`)
  return Object.assign(service, await service.ended)
}

/** Waits for a condition to become true, and asks less often the longer it takes: the processes that it waits for need the machine. */
export async function until(ready: () => boolean | Promise<boolean>, ms = 15_000): Promise<void> {
  const begun = performance.now()
  while (!(await ready())) {
    const waited = performance.now() - begun
    if (waited > ms) throw new Error(`still waiting after ${ms} ms`)
    await sleep(Math.min(10 + waited / 20, 100))
  }
}
