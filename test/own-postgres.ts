import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { expect, inject, onTestFinished } from 'vitest'
import { freePort, setting } from './postgres.ts'
import { administer } from './postgres-databases.ts'

type Place = {
  /** Where the data goes; a folder of its own otherwise. */
  folder?: string
  /** Somewhere else than the rest: the log of what is written. */
  walFolder?: string
  /** Of each page, as is the default. */
  checksums?: boolean
  /** Settings of the server, besides those of every test. */
  settings?: Readonly<Record<string, string>>
}

/** Settings of a server that may get a standby. */
export const replicated = { wal_level: 'replica', max_wal_senders: '4', hot_standby: 'on' }

type Program = { path: string; uid: number; gid: number }

/** A Postgres for one test, whose processes may be killed, frozen and started again. It ends with the test. */
export class OwnPostgres {
  readonly databaseUrl: string
  readonly #data: string
  readonly #port: number
  readonly #program: Program
  #server: ReturnType<typeof spawn> | undefined
  readonly #settings: Readonly<Record<string, string>>
  log = ''

  private constructor(
    data: string,
    port: number,
    password: string,
    program: Program,
    settings: Readonly<Record<string, string>>,
  ) {
    this.#data = data
    this.#settings = settings
    this.#port = port
    this.#program = program
    this.databaseUrl = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
  }

  static async begin({
    folder,
    walFolder,
    checksums = true,
    settings = {},
  }: Place = {}): Promise<OwnPostgres> {
    const program = await programOfTheRun()
    const data = join(folder ?? (await ownFolder()), 'data')
    const password = randomBytes(12).toString('hex')
    mkdirSync(data, { mode: 0o700 })
    if (walFolder !== undefined) chownSync(walFolder, program.uid, program.gid)
    chownSync(data, program.uid, program.gid)
    const passwordFile = join(dirname(data), 'password')
    writeFileSync(passwordFile, password)
    chownSync(passwordFile, program.uid, program.gid)
    const server = new OwnPostgres(data, await freePort(), password, program, settings)
    const flags = ['--encoding=UTF8', '--locale=C', '--no-sync', '--auth=password', '--wal-segsize=1']
    execFileSync(
      join(dirname(program.path), 'initdb'),
      [
        ...flags,
        '--username=postgres',
        `--pgdata=${data}`,
        `--pwfile=${passwordFile}`,
        ...(checksums ? [] : ['--no-data-checksums']),
        ...(walFolder === undefined ? [] : [`--waldir=${join(walFolder, 'wal')}`]),
      ],
      { uid: program.uid, gid: program.gid, stdio: 'pipe', cwd: '/' },
    )
    await server.start()
    onTestFinished(() => server.kill())
    return server
  }

  /** Makes a file that of the user of the server. */
  static async give(file: string): Promise<void> {
    const { uid, gid } = await programOfTheRun()
    chownSync(file, uid, gid)
  }

  async start(): Promise<void> {
    const { path, uid, gid } = this.#program
    const flags = [
      ...setting('listen_addresses', '127.0.0.1'),
      ...setting('unix_socket_directories', ''),
      // What a process had written survives the process; the machine loses no power.
      ...setting('fsync', 'off'),
      ...setting('max_wal_size', '16MB'),
      ...setting('min_wal_size', '2MB'),
      ...setting('shared_buffers', '16MB'),
      ...Object.entries(this.#settings).flatMap(([name, value]) => setting(name, value)),
    ]
    const server = spawn(path, ['-D', this.#data, '-p', String(this.#port), ...flags], { uid, gid, cwd: '/' })
    this.#server = server
    server.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.log += text
    })
    const ended = new Promise<never>((_, reject) =>
      server.once('exit', () => reject(new Error(`Postgres ended: ${this.log}`))),
    )
    await Promise.race([ended, this.#answers()])
    ended.catch(() => {})
  }

  get isRunning(): boolean {
    return this.#server?.exitCode === null && this.#server.signalCode === null
  }

  /** The server and the processes it has made. */
  get pids(): { postmaster: number; children: number[] } {
    const postmaster = this.#server!.pid!
    const children = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && parentOf(name) === postmaster)
      .map(Number)
    return { postmaster, children }
  }

  signalAll(signal: NodeJS.Signals): void {
    const { postmaster, children } = this.pids
    for (const pid of [postmaster, ...children]) signalOne(pid, signal)
  }

  /** All of them at once, as when the machine fails; resolves when they are gone. */
  async kill(): Promise<void> {
    if (!this.isRunning) return
    const { children } = this.pids
    const gone = new Promise((resolve) => this.#server!.once('exit', resolve))
    this.signalAll('SIGKILL')
    await gone
    // What the server leaves alone is somebody else's child by now.
    while (children.some((pid) => signalOne(pid, 0))) await new Promise((resolve) => setTimeout(resolve, 20))
  }

  /** Ends it as its operator would. */
  async stop(): Promise<void> {
    const gone = new Promise((resolve) => this.#server!.once('exit', resolve))
    signalOne(this.pids.postmaster, 'SIGINT')
    await gone
  }

  /** A copy of a stopped server that follows it (a streaming standby named `standby`), and runs. */
  async standby(): Promise<OwnPostgres> {
    const data = join(await ownFolder(), 'data')
    execFileSync('cp', ['-a', this.#data, data])
    const signal = join(data, 'standby.signal')
    writeFileSync(signal, '')
    chownSync(signal, this.#program.uid, this.#program.gid)
    const { password } = new URL(this.databaseUrl)
    const primary = `host=127.0.0.1 port=${this.#port} user=postgres password=${password} application_name=standby`
    const settings = { ...this.#settings, primary_conninfo: primary }
    const standby = new OwnPostgres(data, await freePort(), password, this.#program, settings)
    await Promise.all([this.start(), standby.start()])
    onTestFinished(() => standby.kill())
    return standby
  }

  /** The same of a running server, which from now on confirms a commit only once the standby has it. */
  async synchronousStandby(): Promise<OwnPostgres> {
    await this.stop()
    const standby = await this.standby()
    await this.ask(async (client) => {
      await client.query("alter system set synchronous_standby_names = 'standby'")
      await client.query('select pg_reload_conf()')
    })
    const isSynchronous = () =>
      this.ask(async (client) => {
        const { rows } = await client.query('select sync_state from pg_stat_replication')
        return rows.map(({ sync_state: state }) => state as string)
      })
    await expect.poll(isSynchronous, { timeout: 20_000 }).toEqual(['sync'])
    return standby
  }

  /** Makes a standby a primary. */
  promote(): void {
    const { path, uid, gid } = this.#program
    const options = { uid, gid, cwd: '/', stdio: 'pipe' } as const
    execFileSync(join(dirname(path), 'pg_ctl'), ['promote', '-D', this.#data, '-w'], options)
  }

  async ask<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client(this.databaseUrl)
    client.on('error', () => {})
    await client.connect()
    try {
      return await work(client)
    } finally {
      await client.end()
    }
  }

  async #answers(): Promise<void> {
    for (const end = performance.now() + 20_000; ; ) {
      try {
        return void (await this.ask((client) => client.query('select 1')))
      } catch (error) {
        if (performance.now() > end) throw error
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  }
}

function signalOne(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch {
    return false
  }
}

function parentOf(pid: string): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return undefined
  }
}

/** The program and the user of the server of the whole run. */
async function programOfTheRun(): Promise<Program> {
  const data = await administer(async (client) => {
    const { rows } = await client.query(`select setting from pg_settings where name = 'data_directory'`)
    return rows[0].setting as string
  })
  const [pid] = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')
  const { uid, gid } = statSync(data)
  return { path: readlinkSync(`/proc/${pid}/exe`), uid, gid }
}

/** Not within the folder of the tests, which the user of the server may not enter. */
async function ownFolder(): Promise<string> {
  const folder = await mkdtemp(join(dirname(inject('temporaryFolder')), 'svc-own-postgres-'))
  execFileSync('chmod', ['755', folder])
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}
