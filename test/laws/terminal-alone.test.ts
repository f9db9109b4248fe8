import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { listening } from '../cli/network.ts'
import { binary, Home, noTerminal } from '../cli/run.ts'
import { serviceEnv, until } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { secret, signedHeaders } from '../webhooks/signed.ts'
import { alone, files, local } from './command-lines.ts'
import { hostile, isClean, own, shown } from './hostile.ts'
import { HostileService } from './hostile-service.ts'
import { root } from './imports.ts'

const home = new Home()
const services = [new HostileService('likely'), new HostileService('refusal')]
let urls: string[] = []
const tried = new Set<string>()

/** A command on its own terminal. Its output there is clean, however far it got. */
function at(id: string, args: string[], env: Record<string, string> = {}) {
  tried.add(id)
  const words = [process.execPath, binary, ...id.split(':'), ...args].map((word) => `'${word}'`)
  const child = spawn('script', ['-qefc', `stty cols 200 rows 40; exec ${words.join(' ')}`, '/dev/null'], {
    cwd: home.path,
    env: { ...home.env, TERM: 'xterm-256color', SVC_NO_INPUT: '1', SVC_TIMEOUT: '5s', ...env },
    stdio: 'pipe',
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (more: string) => {
      text += more
    })
  }
  const ended = new Promise<void>((resolve) => child.on('close', () => resolve()))
  return {
    text: () => text,
    has: (part: string | RegExp) => until(() => text.search(part) !== -1, 30_000),
    /** Sends Ctrl-C, unless the command ends by itself. */
    async end(by?: 'Ctrl-C') {
      if (by) child.stdin.write('\u0003')
      await ended
      const said = text.replaceAll('\r\n', '\n').replace(own, '')
      expect(isClean(said), JSON.stringify(said)).toBe(true)
      expect(said).not.toMatch(/^FORGED/m)
      return said
    },
  }
}

async function freePort(): Promise<string> {
  const server = createServer()
  const port = await listening(server)
  await new Promise((resolve) => server.close(resolve))
  return String(port)
}

describe.skipIf(noTerminal)('with hostile data, the terminal output is clean of', () => {
  beforeAll(async () => {
    for (const [name, text] of Object.entries(files)) home.write(name, text)
    urls = await Promise.all(services.map((one) => one.start()))
  })
  afterAll(async () => {
    await Promise.all(services.map((one) => one.stop()))
    home.remove()
  })

  it.each([[[]], [['--json']]])('svc agent run %j', async (more) => {
    const seen: string[] = []
    for (const [n, url] of urls.entries()) {
      const args = [
        '--once',
        '--url',
        url,
        '--enrollment-key',
        '@secret.txt',
        '--state-dir',
        `run-${n}`,
        ...more,
      ]
      seen.push(await at('agent:run', args).end())
    }
    expect(seen[1]).toContain(shown)
  })

  it('svc agent simulate', async () => {
    const seen: string[] = []
    for (const [n, url] of urls.entries()) {
      const of = ['--count', '1', '--for', '3s', '--interval', '1s', '--state', `fleet-${n}.json`]
      seen.push(await at('agent:simulate', [...of, '--url', url, '--enrollment-key', '@secret.txt']).end())
    }
    expect(seen.join('')).toContain(shown)
  })

  it('svc login', async () => {
    const seen: string[] = []
    for (const url of urls) {
      const who = ['--email', 'ada@example.com', '--password', '@secret.txt', '--store', 'file']
      seen.push(await at('login', who, { SVC_URL: url }).end())
    }
    expect(seen.join('')).toContain(shown)
  })

  it('svc complete', async () => {
    for (const url of urls) {
      const env = { SVC_URL: url, SVC_TOKEN: 'token' }
      await at('complete', ['fish', '--', 'orgs', 'show', ''], env).end()
    }
  })

  it('svc webhooks listen', async () => {
    const port = await freePort()
    const key = home.write('webhook.txt', `${secret}\n`)
    const command = at('webhooks:listen', ['--port', port, '--secret', `@${key}`])
    await command.has('Listening')
    const body = JSON.stringify({ id: hostile, type: hostile, orgId: hostile, data: { [hostile]: hostile } })
    await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers: signedHeaders(body), body })
    const forged = {
      ...signedHeaders(body),
      'x-service-event-id': '\u009b35m',
      'webhook-signature': 'v1,\u009b',
    }
    await fetch(`http://127.0.0.1:${port}/\u009b`, { method: 'POST', headers: forged, body })
    await command.has('e\\\\u001b')
    expect(await command.end('Ctrl-C')).toContain(shown)
  })

  it('svc webhooks listen --webhook', async () => {
    const of = ['--webhook', '0197c1c4-0000-7000-8000-000000000010']
    const env = { SVC_URL: urls[0]!, SVC_TOKEN: 'token' }
    const command = at('webhooks:listen', of, env)
    await command.has(/unchecked|Error/)
    await command.end('Ctrl-C')
  })

  it('svc db status', async () => {
    const dataDir = await temporaryFolder()
    const env = { SVC_DATA_DIR: dataDir }
    expect((await home.run(['db', 'migrate'], { env })).code).toBe(0)
    const database = new Database(join(dataDir, 'svc.sqlite'))
    database.prepare('update svc_migrations set applied_at = ?').run(hostile)
    database.close()
    for (const more of [[], ['--json'], ['--csv']]) {
      expect(await at('db:status', more, env).end()).toContain(shown)
    }
  })

  it('svc serve', async () => {
    const dataDir = await temporaryFolder()
    const port = await freePort()
    const env = { ...serviceEnv, SVC_DATA_DIR: dataDir, PORT: port, LOG_LEVEL: 'trace', NO_COLOR: '1' }
    const service = at('serve', [], env)
    await service.has('listening on')
    const said = hostile.replace('\r\n', '')
    const login = { email: `${said}@example.com`, password: said }
    const headers = { 'content-type': 'application/json', 'x-request-id': '\u009b35m' }
    const sent = { method: 'POST', headers, body: JSON.stringify(login) }
    await fetch(`http://127.0.0.1:${port}/api/v1/auth/login`, sent)
    await raw(
      Number(port),
      'GET /\u001b[35m\u009b HTTP/1.1\r\nhost: \u009b\r\nuser-agent: \u001b]0;t\u0007\r\n\r\n',
    )
    await service.end('Ctrl-C')
  })

  it('every command that the other test omits; the rest calls no service', () => {
    expect([...tried].sort()).toEqual([...alone].sort())
    for (const id of local) {
      const text = readFileSync(`${root}commands/${id.replace(':', '/')}.ts`, 'utf8')
      expect(text, id).toContain('extends LocalCommand')
    }
  })
})

function raw(port: number, text: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.end(text, 'latin1'))
    socket
      .on('error', () => resolve())
      .on('close', () => resolve())
      .resume()
  })
}
