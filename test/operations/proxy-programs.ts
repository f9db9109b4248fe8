import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { until } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { replaced, textOf } from './guide.ts'

export type ProxyName = 'nginx' | 'caddy' | 'haproxy'
type Ports = { https: number; http: number; services: readonly [number, number] }
type Certificate = { cert: string; key: string }

const installed = (program: string, flag: string) => spawnSync(program, [flag]).status === 0
const has = {
  nginx: installed('nginx', '-v'),
  caddy: installed('caddy', 'version'),
  haproxy: installed('haproxy', '-v'),
}

export const proxies: readonly ProxyName[] = ['nginx', 'caddy', 'haproxy']
export const missing = (name: ProxyName) => (has[name] ? undefined : `${name} is not installed`)

/** A file of docs/operations/proxy. */
export const configurationOf = (name: string): string => textOf(`proxy/${name}`)

const prepare: Record<ProxyName, (folder: string, ports: Ports, certificate: Certificate) => string[]> = {
  nginx(folder, { https, http, services }, { cert, key }) {
    const site = replaced(configurationOf('nginx.conf'), {
      'listen 443 ssl;': `listen 127.0.0.1:${https} ssl;`,
      'listen 80;': `listen 127.0.0.1:${http};`,
      'svc.example.com': 'svc.test',
      '/etc/svc/tls/fullchain.pem': cert,
      '/etc/svc/tls/privkey.pem': key,
      '127.0.0.1:3000': `127.0.0.1:${services[0]}`,
      '127.0.0.1:3001': `127.0.0.1:${services[1]}`,
    })
    writeFileSync(join(folder, 'svc.conf'), site)
    const own = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path ${join(folder, kind)};`,
    )
    const user = process.getuid?.() === 0 ? 'user root;' : ''
    const main = `${user} worker_processes 1; pid ${join(folder, 'pid')}; daemon off; error_log stderr;
      events { worker_connections 512; } http { access_log off; ${own.join(' ')} include svc.conf; }`
    const file = join(folder, 'nginx.conf')
    writeFileSync(file, main)
    return ['-p', folder, '-c', file, '-e', 'stderr']
  },
  caddy(folder, { https, http, services }, { cert, key }) {
    const site = replaced(configurationOf('Caddyfile'), {
      '\nsvc.example.com {': `\nhttps://svc.test:${https} {\n\tbind 127.0.0.1\n\ttls ${cert} ${key}`,
      '127.0.0.1:3000': `127.0.0.1:${services[0]}`,
      '127.0.0.1:3001': `127.0.0.1:${services[1]}`,
    })
    const global = `{\n\tadmin off\n\thttp_port ${http}\n\thttps_port ${https}\n\tdefault_bind 127.0.0.1\n}\n`
    const file = join(folder, 'Caddyfile')
    writeFileSync(file, global + site)
    return ['run', '--adapter', 'caddyfile', '--config', file]
  },
  haproxy(folder, { https, http, services }, { cert, key }) {
    const both = join(folder, 'haproxy.pem')
    writeFileSync(both, readFileSync(cert, 'utf8') + readFileSync(key, 'utf8'), { mode: 0o600 })
    const site = replaced(configurationOf('haproxy.cfg'), {
      'bind :443': `bind 127.0.0.1:${https}`,
      'bind :80': `bind 127.0.0.1:${http}`,
      '/etc/svc/tls/haproxy.pem': both,
      '/run/haproxy/admin.sock': join(folder, 'admin.sock'),
      '127.0.0.1:3000': `127.0.0.1:${services[0]}`,
      '127.0.0.1:3001': `127.0.0.1:${services[1]}`,
    })
    const file = join(folder, 'haproxy.cfg')
    writeFileSync(file, site)
    return ['-db', '-f', file]
  },
}

type Running = { folder: string; pid: number; ports: Ports }

/** Takes one of the processes out, and nobody asks it any more when this resolves; or puts all back. */
const send: Partial<Record<ProxyName, (proxy: Running, out: 0 | 1 | undefined) => Promise<void>>> = {
  async nginx({ folder, pid, ports }, out) {
    const file = join(folder, 'svc.conf')
    const all = readFileSync(file, 'utf8').replaceAll(' down ', ' ')
    const address = out === undefined ? undefined : `127.0.0.1:${ports.services[out]} `
    writeFileSync(file, address === undefined ? all : replaced(all, { [address]: `${address}down ` }))
    const workers = () =>
      spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' })
        .stdout.trim()
        .split('\n')
    const old = workers()
    process.kill(pid, 'SIGHUP')
    await until(() => workers().every((one) => one !== '' && !old.includes(one)), 30_000)
  },
  async haproxy({ folder }, out) {
    for (const n of [0, 1]) {
      const socket = connect(join(folder, 'admin.sock'))
      socket.end(`set server svc/svc-${n + 1} state ${n === out ? 'drain' : 'ready'}\n`)
      if ((await text(socket)).trim() !== '') throw new Error('haproxy did not accept a command')
    }
  },
}

/** Caddy cannot take one out without failing requests. */
export const canTakeOut = (name: ProxyName): boolean => name in send

type Elsewhere = {
  /** The beginning of a command that runs the rest of it somewhere else. */
  within?: readonly string[]
  /** Changes what `prepare` has written. */
  change?(folder: string): void
  accepts?(port: number): boolean | Promise<boolean>
}

/** The real proxy with the configuration of the guide. */
export async function startProxy(
  name: ProxyName,
  ports: Ports,
  certificate: Certificate,
  { within = [], change = () => {}, accepts = acceptsHere }: Elsewhere = {},
) {
  const folder = await temporaryFolder()
  for (const kind of ['client_body', 'proxy', 'config', 'data']) mkdirSync(join(folder, kind))
  const args = prepare[name](folder, ports, certificate)
  change(folder)
  const env = {
    PATH: process.env.PATH,
    HOME: folder,
    XDG_CONFIG_HOME: join(folder, 'config'),
    XDG_DATA_HOME: join(folder, 'data'),
  }
  const [command = '', ...words] = [...within, name, ...args]
  const child = spawn(command, words, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (said: string) => {
      log += said
    })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const stop = async () => {
    child.kill('SIGTERM')
    const late = setTimeout(() => child.kill('SIGKILL'), 2000)
    await ended
    clearTimeout(late)
  }
  try {
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`${name} ended`)
      return accepts(ports.https)
    }, 15_000)
  } catch (error) {
    await stop()
    throw new Error(`${name} did not start: ${log}`, { cause: error })
  }
  const running = { folder, pid: child.pid!, ports }
  return {
    stop,
    takeOut: (n: 0 | 1) => send[name]!(running, n),
    putBack: () => send[name]!(running, undefined),
  }
}

const acceptsHere = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false))
    socket.on('connect', () => socket.destroy())
  })
