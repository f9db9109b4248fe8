import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const binary = fileURLToPath(new URL('../../bin/svc.js', import.meta.url))

export type Result = { code: number | null; signal: string | null; stdout: string; stderr: string; ms: number }

/** A home of its own for one test: no configuration, no keychain, no colour, nobody to ask. */
export class Home {
  readonly path = mkdtempSync(join(tmpdir(), 'svc-cli-'))
  readonly env: Record<string, string>

  constructor(env: Record<string, string> = {}) {
    this.env = {
      PATH: process.env.PATH ?? '',
      HOME: this.path,
      SVC_CONFIG_DIR: join(this.path, 'config'),
      NODE_COMPILE_CACHE: join(tmpdir(), 'svc-cli-compiled'),
      ...env,
    }
  }

  /** Runs the real binary. */
  run(args: string[], options: { input?: string; env?: Record<string, string | undefined> } = {}): Promise<Result> {
    const started = performance.now()
    return new Promise((resolve, reject) => {
      const env = { ...this.env, ...options.env } as NodeJS.ProcessEnv
      const child = spawn(process.execPath, [binary, ...args], { env, cwd: this.path, stdio: 'pipe' })
      const timer = setTimeout(() => child.kill('SIGKILL'), 30_000)
      let stdout = ''
      let stderr = ''
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        stdout += text
      })
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        stderr += text
      })
      child.stdin.on('error', () => {})
      child.on('error', reject)
      child.on('close', (code, signal) => {
        clearTimeout(timer)
        resolve({ code, signal, stdout, stderr, ms: performance.now() - started })
      })
      child.stdin.end(options.input ?? '')
    })
  }

  remove(): void {
    rmSync(this.path, { recursive: true, force: true })
  }
}
