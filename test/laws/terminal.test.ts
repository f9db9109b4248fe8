import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { manifestCommands } from '../cli/manifest.ts'
import { Home, noTerminal } from '../cli/run.ts'
import { alone, type Command, local, typed } from './command-lines.ts'
import { isClean, own, shown } from './hostile.ts'
import { HostileService } from './hostile-service.ts'
import { runLines } from './run-lines.ts'

type Run = { id: string; kind: string; argv: string[]; url: string; columns?: string[] }
type Seen = Run & { code: number | 'late' | 'none'; text: string }

/** Commands that show no text of a service: they call none, or show only numbers, choices and arguments. */
const withoutServiceText = [
  'audit:verify',
  'commands',
  'config:explain',
  'config:schema',
  'context',
  'context:add',
  'context:ls',
  'context:rm',
  'context:use',
  'dev:outbox',
  'filters:explain',
  'help',
  'secrets',
  'serve:health',
  'webhooks:verify',
]
/** Commands that show a multi-line text unchanged: a signed note, or the output of a program. */
const withMultilineText = ['audit:checkpoint', 'devices:result']

const home = new Home()
const services = [new HostileService('likely'), new HostileService('wild'), new HostileService('refusal')]
let seen: Seen[] = []
let screen = ''

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

/** With all columns. */
const columned: [kind: string, ...flags: string[]][] = [
  ['columns', '-o', 'table'],
  ['columns csv', '--csv'],
]

const commands = Object.entries(manifestCommands<Command>()).filter(
  ([id]) => ![...alone, ...local].includes(id),
)

describe.skipIf(noTerminal)('with hostile answers of a service, a terminal', () => {
  beforeAll(async () => {
    const [likely, wild, refusal] = (await Promise.all(services.map((one) => one.start()))) as [
      string,
      string,
      string,
    ]
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
        ...columned.map(([kind, ...flags]) => ({ ...of(kind, likely, ...flags), columns: argv })),
        of('wild', wild),
        of('refused', refusal),
        of('refused json', refusal, '--json'),
      ]
    })
    const written = await runLines(home, runs, { signedInTo: likely, longest: 270_000, terminal: true })
    seen = written.seen
    screen = written.screen
  }, 300_000)

  afterAll(async () => {
    await Promise.all(services.map((one) => one.stop()))
    home.remove()
  })

  it('receives no control sequences except those of the program', () => {
    const bad = seen.filter(({ text }) => !isClean(text.replace(own, '')))
    expect(bad.map(({ id, kind }) => `${id} ${kind}`)).toEqual([])
    expect(isClean(screen.replaceAll('\r\n', '\n').replace(own, ''))).toBe(true)
  })

  it('shows no line of foreign text', () => {
    // A jq program prints texts unchanged, like jq -r.
    const bad = seen.filter(({ kind, text }) => kind !== 'jq' && /^FORGED/m.test(text))
    expect([...new Set(bad.map(({ id }) => id))].sort()).toEqual(withMultilineText)
  })

  it('shows the hostile data: every command was run, and all ended', () => {
    expect(seen.filter(({ code }) => code === 'late').map(({ id, kind }) => `${id} ${kind}`)).toEqual([])
    const silent = commands
      .map(([id]) => id)
      .filter((id) => !seen.some((one) => one.id === id && one.text.includes(shown)))
    expect(silent.sort()).toEqual(withoutServiceText)
  })

  it('receives every column that can be selected', () => {
    const named = seen.filter(({ kind, code }) => kind === 'columns' && code === 0)
    expect(named.length).toBeGreaterThan(80)
  })

  it('receives JSON that is valid', () => {
    const answers = seen.filter(({ kind, code }) => kind === 'json' && code === 0)
    // Notes on standard error share the terminal, so a document is the text between its outermost braces.
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
