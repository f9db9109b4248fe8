import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Home, noTerminal, start } from '../cli/run.ts'
import { me } from '../cli/stand-in.ts'
import { type Command, files, typed } from './command-lines.ts'
import { entryFor, hostile, hostileFor, isClean, shown } from './hostile.ts'

type Run = { id: string; kind: string; argv: string[]; url: string }
type Seen = Run & { code: number | 'late'; text: string }

/** What runs until it is told to end, changes this machine, opens a browser, or reads a database. */
const otherwise = [
  'serve',
  'login',
  'webhooks:listen',
  ...['run', 'simulate', 'install', 'uninstall', 'sign-release'].map((name) => `agent:${name}`),
  ...['migrate', 'status', 'unlock'].map((name) => `db:${name}`),
]
/** They show nothing that a service has said: they ask none, or show numbers, choices and what was typed. */
const quiet = [
  ...['audit:verify', 'commands', 'config:explain', 'context', 'context:add', 'context:ls', 'context:rm'],
  ...['context:use', 'dev:outbox', 'filters:explain', 'help', 'webhooks:verify'],
]
/** They show a text of several lines as it is: a signed note, and what a program has written. */
const lined = ['audit:checkpoint', 'devices:result']

const child = fileURLToPath(new URL('./terminal-child.js', import.meta.url))
const root = fileURLToPath(new URL('../../', import.meta.url))
const home = new Home()
const servers: Server[] = []
let seen: Seen[] = []
let screen = ''

/** Answers every endpoint of the contract with hostile values. */
async function service(answer: 'likely' | 'wild' | 'refusal'): Promise<string> {
  const server = createServer((request, reply) => {
    request.resume().on('end', () => {
      const path = new URL(request.url ?? '', 'http://x').pathname.replace(/^\/api\/v1/, '')
      const entry = entryFor(request.method ?? '', path)
      const text =
        path === '/auth/me' && answer !== 'refusal'
          ? { ...me, user: { ...me.user, name: hostile } }
          : undefined
      const refusal = {
        error: hostile,
        code: hostile,
        requestId: hostile,
        details: [{ path: hostile, message: hostile }],
      }
      const body =
        text ??
        (entry === undefined || answer === 'refusal' ? refusal : hostileFor(entry.reply, answer === 'likely'))
      reply.writeHead(answer === 'refusal' ? 400 : (entry?.status ?? 200), {
        'content-type': 'application/json',
      })
      reply.end(JSON.stringify(body))
    })
  })
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const formats: [kind: string, ...flags: string[]][] = [
  ['plain'],
  ['table', '-o', 'table'],
  ['json', '--json'],
  ['yaml', '-o', 'yaml'],
  ['csv', '--csv'],
  ['ndjson', '-o', 'ndjson'],
  ['id', '-q'],
  ['jq', '--jq', '., (.. | strings), (.. | objects | keys[])'],
]

const commands = Object.entries(
  (
    JSON.parse(execFileSync('cat', [`${root}/oclif.manifest.json`], { encoding: 'utf8' })) as {
      commands: Record<string, Command>
    }
  ).commands,
).filter(([id]) => !otherwise.includes(id))

describe.skipIf(noTerminal)('whatever a service answers, a terminal', () => {
  beforeAll(async () => {
    const [likely, wild, refusal] = [await service('likely'), await service('wild'), await service('refusal')]
    for (const [name, text] of Object.entries(files)) home.write(name, text)
    home.signIn(likely)
    const runs = commands.flatMap(([id, command]): Run[] => {
      const argv = typed(id, command)
      const of = (kind: string, url: string, ...flags: string[]) => ({
        id,
        kind,
        argv: [...argv, ...flags],
        url,
      })
      return [
        ...formats.map(([kind, ...flags]) => of(kind, likely, ...flags)),
        of('wild', wild),
        of('refused', refusal),
        of('refused json', refusal, '--json'),
      ]
    })
    mkdirSync(`${home.path}/used`)
    const to = `${home.path}/seen.json`
    const told = home.write(
      'runs.json',
      JSON.stringify({ runs, to, config: { fresh: home.config, used: `${home.path}/used` } }),
    )
    const env = {
      ...home.env,
      SVC_TOKEN: 'token',
      SVC_NO_INPUT: '1',
      SVC_TIMEOUT: '2s',
      TERM: 'xterm-256color',
    }
    const line = `stty cols 100 rows 40; exec '${process.execPath}' '${child}' '${told}'`
    const result = await start('script', ['-qefc', line, '/dev/null'], env, home.path, { longest: 120_000 })
    screen = result.stdout
    seen = JSON.parse(home.read('seen.json')) as Seen[]
  }, 150_000)

  afterAll(async () => {
    for (const server of servers) {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    }
    home.remove()
  })

  it('is given no control but those of the program', () => {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    const own = /\u001b\[(?:0|1|2|4|22|24|3[0-379]|4[07])m|\r\u001b\[2K|\u001b\[\d+A|\u001b\[0J/g
    const bad = seen.filter(({ text }) => !isClean(text.replace(own, '')))
    expect(bad.map(({ id, kind }) => `${id} ${kind}`)).toEqual([])
    expect(isClean(screen.replaceAll('\r\n', '\n').replace(own, ''))).toBe(true)
  })

  it('shows no line that another has written', () => {
    // A jq program prints texts as they are, as jq -r does.
    const bad = seen.filter(({ kind, text }) => kind !== 'jq' && /^FORGED/m.test(text))
    expect([...new Set(bad.map(({ id }) => id))]).toEqual(lined)
  })

  it('shows what it was given: every command was asked, and all ended', () => {
    expect(seen.filter(({ code }) => code === 'late').map(({ id, kind }) => `${id} ${kind}`)).toEqual([])
    const silent = commands
      .map(([id]) => id)
      .filter((id) => !seen.some((one) => one.id === id && one.text.includes(shown)))
    expect(silent.sort()).toEqual(quiet)
  })

  it('is given JSON that is JSON', () => {
    const answers = seen.filter(({ kind, code }) => kind === 'json' && code === 0)
    // Notes come on standard error, which is the same terminal: a document is what stands between its outermost braces.
    const documents = answers.flatMap(({ id, text }) => {
      const found = /^\{$.*^\}$|^\{.*\}$/ms.exec(text)
      return found ? [{ id, text: found[0] }] : []
    })
    expect(documents.length).toBeGreaterThan(150)
    const broken = documents.filter(({ text }) => !isJson(text) && !text.split('\n').every(isJson))
    expect(broken.map(({ id }) => id)).toEqual([])
  })
})

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
