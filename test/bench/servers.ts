import { type ChildProcess, spawnSync } from 'node:child_process'
import { existsSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { defaultLimits } from '../../src/core/limits.ts'
import { defaultQuotas } from '../../src/core/quotas.ts'
import type { BareRoute } from './bare-server.ts'
import { bareEnv, firstLine, fromHere, root, start, temporaryFolder } from './children.ts'
import { type Place, secrets } from './world.ts'

export type Server = { name: string; url: string; child: ChildProcess }

export const svc = join(root, 'bin', 'svc.js')

/** Builds what changed. What cannot be built is measured as it was before, and said so. */
export function build(): void {
  const built = spawnSync(process.execPath, [join(root, 'build.js')], { cwd: root, encoding: 'utf8' })
  if (built.status === 0) return
  process.stderr.write(
    `The build has faults; what was built before is measured:\n${built.stdout}${built.stderr}\n`,
  )
}

/** Why the built command cannot be measured, or undefined when it can. */
export function notBuilt(): string | undefined {
  if (!existsSync(svc)) return 'bin/svc.js does not exist yet'
  return existsSync(join(root, 'dist', 'commands', 'serve.js'))
    ? undefined
    : 'dist/ is not built: npm run build'
}

let home: string | undefined

/** Settings of a `svc` that knows nothing of this machine; all of them share a cache of compiled code. */
export function svcEnv(more: Record<string, string> = {}): Record<string, string> {
  home ??= temporaryFolder('home')
  const at = Object.fromEntries(
    ['CACHE', 'CONFIG', 'DATA', 'STATE'].map((kind) => [`XDG_${kind}_HOME`, `${home}/${kind}`]),
  )
  return bareEnv({ HOME: home, ...at, ...more })
}

const noLimits = Object.fromEntries([
  ...Object.keys(defaultLimits).map((name) => [`RATE_LIMIT_${name}`, 'off']),
  ...Object.keys(defaultQuotas).map((name) => [`QUOTA_${name}`, '1000000']),
])

type ServiceOptions = {
  logLevel?: string
  nodeFlags?: readonly string[]
  env?: Record<string, string>
  /** With the rate limits there are; without it, none. */
  limits?: boolean
  /** A free one by default. */
  port?: number
}

/** `svc serve` as it is run, by default without rate limits; its log goes to a file, as on a server. */
export function spawnService(
  place: Place,
  { logLevel = 'warn', nodeFlags = [], env: more = {}, limits = false, port = 0 }: ServiceOptions = {},
): ChildProcess {
  const { dataDir, databaseUrl } = place
  const env = svcEnv({
    ...(!limits && noLimits),
    ...secrets,
    ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
    LOG_LEVEL: logLevel,
    SVC_ADMIN_PASSWORD: 'correct horse battery staple',
    ...more,
  })
  const stderr = openSync(logOf(place), 'a')
  return start([...nodeFlags, svc, 'serve', '--port', String(port), '--json', '--data-dir', dataDir], {
    env,
    stderr,
  })
}

export async function startService(name: string, place: Place, options?: ServiceOptions): Promise<Server> {
  const child = spawnService(place, options)
  try {
    return { name, url: await listening(child), child }
  } catch (error) {
    const said = readFileSync(logOf(place), 'utf8').slice(-2000)
    throw new Error(`svc serve did not start:\n${said}`, { cause: error })
  }
}

const logOf = ({ dataDir }: Place): string => join(dataDir, 'bench.log')

export const listening = (child: ChildProcess): Promise<string> =>
  firstLine(child, (line) => (line.startsWith('{') ? (JSON.parse(line) as { url?: string }).url : undefined))

export async function startBare(
  name: string,
  kind: 'http' | 'fastify',
  routes: readonly BareRoute[],
): Promise<Server> {
  const file = join(temporaryFolder(kind), 'routes.json')
  writeFileSync(file, JSON.stringify(routes))
  const child = start([fromHere('./bare-server.ts'), kind, file])
  return { name, url: await listening(child), child }
}

/** Microseconds of processor time of a process until now; undefined where there is no /proc. */
export function cpuOf({ pid }: ChildProcess): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
    return (Number(fields[11]) + Number(fields[12])) * 10_000
  } catch {
    return undefined
  }
}

/** Resident memory in MB, as it is or the most so far; undefined where there is no /proc. */
export function residentMb({ pid }: ChildProcess, what: 'VmRSS' | 'VmHWM' = 'VmRSS'): number | undefined {
  try {
    const kb = new RegExp(`^${what}:\\s+(\\d+) kB`, 'm').exec(
      readFileSync(`/proc/${pid}/status`, 'utf8'),
    )?.[1]
    return kb === undefined ? undefined : (Number(kb) * 1024) / 1e6
  } catch {
    return undefined
  }
}

/** Milliseconds since it was last asked, as stalls.ts measures them in the server and writes to the file. */
export async function longestStall({ child }: Server, file: string): Promise<number> {
  rmSync(file, { force: true })
  child.kill('SIGUSR2')
  for (let tries = 0; tries < 200; tries++) {
    const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
    if (text !== '') return Number(text)
    await sleep(10)
  }
  return Number.NaN
}
