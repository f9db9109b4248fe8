import { spawnSync } from 'node:child_process'
import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { removeFolder, root, stop, temporaryFolder } from './children.ts'
import { atMost, median, type Row, spreadOf } from './figures.ts'
import { cpuOf, listening, residentMb, spawnService, startBare } from './servers.ts'

export type ServeOptions = { rounds: number; install: boolean }

/** How soon the service answers, and what it takes to hold and to install. */
export async function serve(options: ServeOptions, say: (line: string) => void): Promise<Row[]> {
  say('serve: starting')
  const rows = await starts(options.rounds)
  if (options.install) {
    say('serve: installing')
    rows.push(await installSize())
  }
  return rows
}

async function starts(rounds: number): Promise<Row[]> {
  const kept = temporaryFolder('data')
  const times: Record<'existing' | 'fresh' | 'bare', number[]> = { existing: [], fresh: [], bare: [] }
  const memory: number[] = []
  const work = { existing: [] as number[], fresh: [] as number[] }
  // Once for the data directory, and twice until compiled code is cached.
  for (let n = 0; n < 3; n++) await timeToAnswer(kept)
  for (let round = 0; round < rounds; round++) {
    times.bare.push(await bareTime())
    times.existing.push(await timeToAnswer(kept, { memory, work: work.existing }))
    const fresh = temporaryFolder('fresh')
    times.fresh.push(await timeToAnswer(fresh, { work: work.fresh }))
    removeFolder(fresh)
  }
  const row = (name: 'existing' | 'fresh'): Row => ({
    bench: 'serve',
    subject: `first answer, ${name} data directory`,
    against: 'bare Fastify',
    ratio: spreadOf(times[name].map((time, round) => time / times.bare[round]!)),
    ...atMost(median(times[name]), 500, ' ms'),
    figures: { ms: median(times[name]), 'cpu ms': median(work[name]), 'bare ms': median(times.bare) },
  })
  const idle = median(memory)
  return [
    row('existing'),
    row('fresh'),
    { bench: 'serve', subject: 'idle', figures: { 'MB resident': idle }, ...atMost(idle, 120, ' MB') },
  ]
}

type Notes = { memory?: number[]; work?: number[] }

/** Milliseconds from spawn to the first 200 on /health; notes resident MB at rest and milliseconds of work. */
async function timeToAnswer(dataDir: string, { memory, work }: Notes = {}): Promise<number> {
  const begin = performance.now()
  const child = spawnService({ dataDir })
  const url = await listening(child)
  const { status } = await fetch(`${url}/health`)
  const time = performance.now() - begin
  if (status !== 200) throw new Error(`/health answers ${status}`)
  work?.push((cpuOf(child) ?? Number.NaN) / 1000)
  if (memory) {
    await sleep(1500)
    memory.push(residentMb(child) ?? Number.NaN)
  }
  await stop(child)
  return time
}

async function bareTime(): Promise<number> {
  const reply = { status: 'ok' }
  const begin = performance.now()
  const { url, child } = await startBare('bare Fastify', 'fastify', [
    { method: 'GET', path: '/health', status: 200, reply, schema: {} },
  ])
  await fetch(`${url}/health`)
  const time = performance.now() - begin
  await stop(child)
  return time
}

/** What `npm install` of the packed product puts on a disk. */
async function installSize(): Promise<Row> {
  const folder = temporaryFolder('install')
  const npm = (args: readonly string[], cwd: string) => {
    const run = spawnSync('npm', [...args, '--prefer-offline', '--loglevel=error'], {
      cwd,
      encoding: 'utf8',
      timeout: 150_000,
    })
    if (run.status !== 0) throw new Error(`npm ${args[0]}: ${run.stderr}`)
    return run.stdout
  }
  const packed = npm(['pack', '--ignore-scripts', '--pack-destination', folder], root)
  const tarball = join(folder, packed.trim().split('\n').at(-1)!)
  const target = temporaryFolder('installed')
  npm(['install', '--prefix', target, '--omit=dev', '--no-audit', '--no-fund', '--no-save', tarball], target)
  const parts = readdirSync(join(target, 'node_modules')).flatMap((name) =>
    name.startsWith('@')
      ? readdirSync(join(target, 'node_modules', name)).map((it) => `${name}/${it}`)
      : [name],
  )
  const sizes = parts.map((name) => ({ name, size: sizeOf(join(target, 'node_modules', name)) / 1e6 }))
  const total = sizes.reduce((sum, { size }) => sum + size, 0)
  const largest = sizes.toSorted((a, b) => b.size - a.size).slice(0, 5)
  removeFolder(folder)
  removeFolder(target)
  return {
    bench: 'serve',
    subject: 'production install',
    figures: { MB: total, ...Object.fromEntries(largest.map(({ name, size }) => [name, size])) },
    ...atMost(total, 120, ' MB'),
  }
}

function sizeOf(path: string): number {
  const stat = lstatSync(path)
  if (!stat.isDirectory()) return stat.size
  return readdirSync(path).reduce((sum, name) => sum + sizeOf(join(path, name)), 0)
}
