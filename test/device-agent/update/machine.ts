import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll } from 'vitest'

const root = fileURLToPath(new URL('../../..', import.meta.url))
const builder = join(root, 'build-agent.js')

/** The agent as a one-file script, for each version that a test file needs. Built on demand. */
export function builds() {
  const folder = mkdtempSync(join(tmpdir(), 'svc-agent-builds-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return (version: string, { executable = false } = {}): string => {
    // The extension of a script would be its type.
    const out = join(folder, `${version}${executable ? '-executable' : ''}`, 'svc-agent')
    if (!existsSync(out)) {
      const args = [builder, '--out', out, '--version', version, ...(executable ? [] : ['--script'])]
      execFileSync(process.execPath, args, { stdio: 'inherit' })
    }
    return out
  }
}

/** The script with code that runs before anything else. */
export const beginningWith = (script: string, code: string): Buffer =>
  Buffer.from(readFileSync(script, 'utf8').replace('\n', `\n${code}\n`))

export type Setting = {
  settings?: object
  env?: Record<string, string>
  args?: string[]
  /** Restarted when it ends, as by systemd. */
  supervised?: boolean
  uid?: number
  /** Shell code before the program, such as `ulimit -f 100;`. */
  shell?: string
  /** Instead of a home of its own, an existing installation. */
  at?: { file: string; stateDir: string }
  /** Runs before the start. */
  prepare?: (where: { file: string; stateDir: string }) => void
}

/** A machine with an installed agent; everything of it ends with the block it is used in. */
export function machine(binary: string | Buffer, url: string, setting: Setting = {}) {
  const home = setting.at ? dirname(setting.at.file) : mkdtempSync(join(tmpdir(), 'svc-agent-'))
  const { stateDir, file } = setting.at ?? {
    stateDir: join(home, 'state'),
    file: join(home, 'bin', 'svc-agent'),
  }
  if (!setting.at) {
    chmodSync(home, 0o755)
    mkdirSync(stateDir, { mode: 0o700 })
    mkdirSync(dirname(file))
    if (typeof binary === 'string') cpSync(binary, file)
    else writeFileSync(file, binary)
    chmodSync(file, 0o755)
  }
  const { settings } = setting
  if (settings) writeFileSync(join(stateDir, 'config.json'), JSON.stringify(settings))
  setting.prepare?.({ file, stateDir })

  let child: ChildProcess | undefined
  /** Resolves once all output is complete, which may arrive after its end. */
  let closed: Promise<number | null> = Promise.resolve(null)
  let stopped = false
  let stdout = ''
  let stderr = ''
  let starts = 0

  function start(): void {
    const args = [
      'run',
      '--json',
      '--url',
      url,
      '--state-dir',
      stateDir,
      '--interval',
      '1',
      ...(setting.args ?? []),
    ]
    const [command, words] = setting.shell
      ? ['sh', ['-c', `${setting.shell} exec "$0" "$@"`, file, ...args]]
      : [file, args]
    starts += 1
    const env = {
      PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
      HOME: home,
      SVC_CONFIG_DIR: join(home, 'config'),
      SVC_ENROLLMENT_KEY: 'f00d'.repeat(16),
      ...setting.env,
    }
    const started = spawn(command as string, words as string[], {
      env,
      detached: true,
      ...(setting.uid !== undefined && { uid: setting.uid, gid: setting.uid }),
    })
    child = started
    closed = new Promise((resolve) => started.once('close', resolve))
    started.on('error', () => {})
    started.stdout?.on('data', (chunk) => {
      stdout += chunk
    })
    started.stderr?.on('data', (chunk) => {
      stderr += chunk
    })
    started.on('exit', () => {
      if (setting.supervised && !stopped) setTimeout(() => stopped || start(), 100)
    })
  }

  const own = {
    home,
    stateDir,
    file,
    start,
    pid: () => child?.pid,
    starts: () => starts,
    /** Its standard output and standard error. */
    output: () => stdout + stderr,
    events: () =>
      stdout
        .split('\n')
        .flatMap((line) => (line.startsWith('{') && line.endsWith('}') ? [JSON.parse(line)] : [])) as {
        event: string
        [field: string]: unknown
      }[],
    states: () => own.events().flatMap(({ event, state }) => (event === 'update' ? [String(state)] : [])),
    journal: () => {
      const path = join(stateDir, 'update.json')
      return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
    },
    alive: () => JSON.parse(readFileSync(join(stateDir, 'alive.json'), 'utf8')),
    installed: () => readFileSync(file),
    /** Kills only the watchdog. */
    kill: () => child?.kill('SIGKILL'),
    /**
     * Kills all its processes, as a power cut does. One that is being started may have no command line yet.
     */
    killAll(): void {
      const all = new Set(processesUnder(home))
      if (child?.pid !== undefined && child.exitCode === null && child.signalCode === null) all.add(child.pid)
      for (const pid of all) {
        try {
          process.kill(pid, 'SIGKILL')
        } catch {
          // It has ended.
        }
      }
    },
    /** Its exit code, once it ends by itself. */
    ended: () => closed,
    async terminate(): Promise<number | null> {
      stopped = true
      child?.kill('SIGTERM')
      return closed
    },
    async stop(): Promise<void> {
      stopped = true
      for (let tries = 0; tries < 20 && processesUnder(home).length > 0; tries += 1) {
        own.killAll()
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await own.stop()
      if (!setting.at) rmSync(home, { recursive: true, force: true })
    },
  }
  start()
  return own
}
export type Machine = ReturnType<typeof machine>

/** Processes whose command line names this folder: of the agent, its watchdog and a trial. */
export function processesUnder(folder: string): number[] {
  const table = execFileSync('ps', ['-eo', 'pid=,args='], { encoding: 'utf8' })
  return table.split('\n').flatMap((line) => {
    const [, pid, args = ''] = /^\s*(\d+) (.*)$/.exec(line) ?? []
    return pid !== undefined && args.includes(folder) ? [Number(pid)] : []
  })
}
