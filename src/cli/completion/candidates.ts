import type { Command } from '@oclif/core/command'
import { eventTypes } from '../../core/event-types.ts'
import { permissions } from '../../core/permissions.ts'
import type { Resource } from '../../core/schema.ts'
import { argNames } from '../flags.ts'
import type { Program } from '../program.ts'
import { shells } from './scripts.ts'
import type { TypedWords } from './typed-words.ts'

export type Candidate = { value: string; description?: string | undefined }

/** What may stand at the cursor: fixed words, and what has to be looked up. */
export type Candidates = {
  fixed: Candidate[]
  lookUp?: 'files' | 'contexts' | { records: Resource }
  /** What stands before each value in the same word, such as `--org=`. */
  prefix: string
  /** The flags before the cursor that choose the service and the organization. */
  connection: { url?: string; context?: string; org?: string }
}

type Flag = Command.Loadable['flags'][string]

const takesValue = (flag: Flag | undefined): boolean => flag?.type === 'option'

/** @param helpPages pages of `svc help` that are no commands */
export function candidatesFor(
  program: Program,
  helpPages: readonly string[],
  { before, current }: TypedWords,
): Candidates {
  const { command, id, used, awaiting, args, isOver, connection } = read(program, before)
  const nothing = { fixed: [], prefix: '', connection }
  if (awaiting) return { ...nothing, ...valuesOf(helpValueOf(awaiting), awaiting, id) }
  const assignment = isOver ? null : /^(--[\w-]+=)/.exec(current)
  if (assignment) {
    const flag = command?.flags[assignment[1]!.slice(2, -1)]
    if (!flag || !takesValue(flag)) return nothing
    return { ...nothing, ...valuesOf(helpValueOf(flag), flag, id), prefix: assignment[1]! }
  }
  if (!isOver && current.startsWith('-')) return { ...nothing, fixed: flagsOf(command, used) }
  if (id[0] === 'help') return { ...nothing, fixed: helpSubjects(program, helpPages, args) }
  const own = args.length === 0 && !isOver ? subcommandsOf(program, id) : []
  const arg = argAt(command, args.length)
  const values = arg ? valuesOf(arg.name.toUpperCase(), arg, id) : { fixed: [] }
  return { ...nothing, ...values, fixed: [...own, ...values.fixed] }
}

const helpValueOf = (flag: Flag): string | undefined =>
  flag.type === 'option' ? [flag.helpValue].flat()[0] : undefined

/** The command that the words name, and how far its arguments have come. */
function read(program: Program, words: readonly string[]) {
  const id: string[] = []
  const args: string[] = []
  const used = new Set<string>()
  const connection: Candidates['connection'] = {}
  let command: Command.Loadable | undefined
  let awaiting: Flag | undefined
  let isOver = false
  for (const word of words) {
    if (awaiting) {
      note(connection, awaiting.name, word)
      awaiting = undefined
    } else if (!isOver && word === '--') {
      isOver = true
    } else if (!isOver && word.startsWith('-') && word !== '-') {
      const [name = '', value] = word.split(/=(.*)/s)
      const flag = flagNamed(command, name)
      if (!flag) continue
      used.add(flag.name)
      if (value !== undefined) note(connection, flag.name, value)
      else if (takesValue(flag)) awaiting = flag
    } else {
      const next = [...id, word].join(':')
      const isName = args.length === 0 && !isOver && (program.findCommand(next) ?? program.findTopic(next))
      if (isName && id[0] !== 'help') {
        id.push(word)
        command = program.findCommand(next)
      } else args.push(word)
    }
  }
  return { id, args, used, command, awaiting, isOver, connection }
}

function note(connection: Candidates['connection'], name: string, value: string): void {
  if (name === 'url' || name === 'context' || name === 'org') connection[name] = value
}

function flagNamed(command: Command.Loadable | undefined, word: string): Flag | undefined {
  const flags = Object.values(command?.flags ?? {})
  if (!word.startsWith('--')) return flags.find(({ char }) => char === word[1])
  return flags.find((flag) => `--${flag.name}` === word || `--no-${flag.name}` === word)
}

function flagsOf(command: Command.Loadable | undefined, used: ReadonlySet<string>): Candidate[] {
  const help = { value: '--help', description: 'Explain the command' }
  const own = Object.values(command?.flags ?? {}).flatMap((flag) => {
    const isRepeated = flag.type === 'option' && flag.multiple === true
    if (flag.hidden || (used.has(flag.name) && !isRepeated)) return []
    const { description } = flag
    const plain = { value: `--${flag.name}`, description }
    return flag.type === 'boolean' && flag.allowNo
      ? [plain, { value: `--no-${flag.name}`, description }]
      : [plain]
  })
  return [...own, help]
}

function subcommandsOf(program: Program, id: readonly string[]): Candidate[] {
  const beginning = id.map((word) => `${word}:`).join('')
  const found = new Map<string, string | undefined>()
  for (const command of program.commands) {
    if (command.hidden || !command.id.startsWith(beginning)) continue
    const [word = ''] = command.id.slice(beginning.length).split(':')
    const topic = program.findTopic(beginning + word)
    const description = topic?.description || (command.id === beginning + word ? command.summary : undefined)
    if (!found.has(word) || description) found.set(word, description)
  }
  return [...found].map(([value, description]) => ({ value, description }))
}

function helpSubjects(program: Program, pages: readonly string[], args: readonly string[]): Candidate[] {
  const subjects = args.length === 0 ? pages.map((value) => ({ value })) : []
  return [...subjects, ...subcommandsOf(program, args)]
}

/** The argument at a position; the last one takes all that follow where it may be repeated. */
function argAt(command: Command.Loadable | undefined, at: number) {
  const args = Object.values(command?.args ?? {})
  const last = args.at(-1)
  return args[at] ?? (last?.multiple === true ? last : undefined)
}

/** Kinds of records by the name of a value in the help. Keys are of agents or of programs: their topic says which. */
const records = new Map(
  (Object.entries(argNames) as [Resource, string][])
    .filter(([, name]) => name !== 'key')
    .map(([resource, name]) => [name.toUpperCase(), resource]),
)

function valuesOf(
  name: string | undefined,
  declared: { options?: readonly string[] | undefined; name?: string },
  [topic]: readonly string[],
): Pick<Candidates, 'fixed' | 'lookUp'> {
  if (declared.options) return { fixed: declared.options.map((value) => ({ value })) }
  if (name === undefined) return { fixed: [] }
  if (/\b(?:FILE|DIR)\b/.test(name)) return { fixed: [], lookUp: 'files' }
  if (declared.name === 'context' || (topic === 'context' && name === 'NAME'))
    return { fixed: [], lookUp: 'contexts' }
  if (name === 'SHELL') return { fixed: shells.map((value) => ({ value })) }
  if (name === 'PERMISSION') return { fixed: permissions.map((value) => ({ value })) }
  if (name === 'EVENT') return { fixed: eventTypes.map((value) => ({ value })) }
  if (name === 'KEY') {
    const resource = topic === 'enroll' ? 'enrollment_key' : topic === 'keys' ? 'api_key' : undefined
    return { fixed: [], ...(resource && { lookUp: { records: resource } }) }
  }
  const resource = records.get(name)
  return { fixed: [], ...(resource && { lookUp: { records: resource } }) }
}
