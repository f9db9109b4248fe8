import { manifestCommands } from '../cli/manifest.ts'
import { blocksIn } from '../markdown-blocks.ts'

type Command = {
  aliases: string[]
  args: Record<string, object>
  flags: Record<string, { char?: string; allowNo?: boolean; aliases?: string[] }>
}

const commands = new Map<string, Command>()
for (const [id, command] of Object.entries(manifestCommands<Command>()))
  for (const name of [id, ...command.aliases]) commands.set(name, command)
const topics = new Set(
  [...commands.keys()].flatMap((id) => id.split(':').map((_, n, all) => all.slice(0, n).join(':'))),
)

const flagsOf = ({ flags }: Command): Set<string> =>
  new Set([
    '--help',
    '--version',
    ...Object.entries(flags).flatMap(([name, { char, allowNo, aliases = [] }]) => [
      ...[name, ...aliases].map((one) => `--${one}`),
      ...(allowNo ? [`--no-${name}`] : []),
      ...(char === undefined ? [] : [`-${char}`]),
    ]),
  ])
const someFlag = new Set([...commands.values()].flatMap((one) => [...flagsOf(one)]))

/**
 * The commands and flags that a text names within its sentences, tables and indented lines, and in the blocks that no test can
 * run; the other blocks are run.
 */
export function namedCommands(text: string): string[] {
  const notRun = blocksIn('', text).filter((block) => block.notRun !== undefined)
  const prose = text.replace(/^```[\s\S]*?^```$/gm, '')
  const spans = [...prose.matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replace(/\s+/g, ' '))
  const indented = [...prose.matchAll(/^ {4}((?:svc|svc-admin) .*?)(?: {2,}.*)?$/gm)].map(([, line]) => line!)
  return [...spans, ...indented, ...notRun.flatMap(({ script }) => script.split('\n'))]
    .flatMap((code) => code.split(/ (?:&&|\||;) /))
    .filter((code) => /^(svc|svc-admin) |^--[a-z]/.test(code))
}

/** What is wrong with a command line, or undefined: the command, what follows its name, or a flag is none of this program. */
export function faultOf(line: string): string | undefined {
  const words = [...line.matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g)].map(([word]) => word)
  if (line.startsWith('--')) {
    return someFlag.has(nameOf(words[0]!)) ? undefined : `no command has the flag ${words[0]}`
  }
  const said = words.slice(1)
  let length = said.findIndex((word) => !/^[a-z][a-z0-9-]*$/.test(word))
  if (length === -1) length = said.length
  const idOf = (count: number) => said.slice(0, count).join(':')
  while (length > 0 && !commands.has(idOf(length)) && !topics.has(idOf(length))) length -= 1
  const rest = said.slice(length)
  if (length === 0) return `there is no svc ${said[0]}`
  const command = commands.get(idOf(length))
  if (command === undefined) return rest.length > 0 ? `there is no svc ${said.join(' ')}` : undefined
  const flags = flagsOf(command)
  const unknown = rest.map(nameOf).find((word) => /^--?[a-z]/.test(word) && !flags.has(word))
  if (unknown !== undefined) return `svc ${said.slice(0, length).join(' ')} has no ${unknown}`
  const isArgument = rest[0] !== undefined && !rest[0].startsWith('-')
  if (isArgument && Object.keys(command.args).length === 0)
    return `svc ${said.slice(0, length).join(' ')} takes no ${rest[0]}`
  return undefined
}

const nameOf = (word: string): string => word.replace(/[=[].*$/, '')
