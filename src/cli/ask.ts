import { readFileSync } from 'node:fs'
import { Writable } from 'node:stream'
import { allowSequence, escapeControls, escapeToOneLine, hasNoControls } from '../core/terminal.ts'
import { CliError, usageError } from './exit-codes.ts'
import type { Settings } from './settings.ts'
import { printNote } from './stderr-notes.ts'
import { wrapWords } from './text-width.ts'
import { decodeUtf8 } from './utf8.ts'

/** Whether a person can be prompted: a terminal on both ends, no CI, no --no-input. */
export const isInteractive = (settings: Pick<Settings, 'noInput'>): boolean =>
  process.stdin.isTTY === true && process.stderr.isTTY === true && !settings.noInput.value

let stdinTaken: string | undefined

/** Everything on standard input. Only one flag of a call can read it. */
export async function readStdin(what: string): Promise<string> {
  return textOf(await readStdinBytes(what), `${what} from standard input`)
}

/** The same as bytes. */
export async function readStdinBytes(what: string): Promise<Buffer> {
  if (stdinTaken !== undefined)
    throw usageError(`${stdinTaken} and ${what} cannot both come from standard input`)
  stdinTaken = what
  if (process.stdin.isTTY) process.stderr.write(`Reading ${what} from standard input; end with Ctrl-D\n`)
  const chunks: Buffer[] = []
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

export const readTextFile = (path: string, what: string): string =>
  textOf(readBytes(path, what), `${what} from ${path}`)

function textOf(bytes: Uint8Array, what: string): string {
  const read = decodeUtf8(bytes)
  if ('text' in read) return read.text
  const { line, column } = read.invalidAt
  throw usageError(`Cannot read ${what}: line ${line}, column ${column} is not UTF-8`, 'save it as UTF-8')
}

export function readBytes(path: string, what: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw usageError(
      `Cannot read ${what} from ${path}: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`,
    )
  }
}

/** `-` is standard input and `@file` a file; anything else is `undefined`. */
export async function readStdinOrFile(text: string, what: string): Promise<string | undefined> {
  if (text === '-') return readStdin(what)
  if (text.startsWith('@')) return readTextFile(text.slice(1), what)
  return undefined
}

/** A secret is never a value on the command line, where every process of the machine can read it. */
export async function readSecret(text: string, flag: string): Promise<string> {
  const value = await readStdinOrFile(text, flag)
  if (value === undefined) throw onCommandLine(flag)
  return value.replace(/\r?\n$/, '')
}

/** The access token of `--token`, else of SVC_TOKEN, read on first use. */
export function tokenSource(
  flag: string | undefined,
): { source: string; read(): Promise<string> } | undefined {
  const { SVC_TOKEN } = process.env
  if (flag === undefined) return SVC_TOKEN ? { source: 'SVC_TOKEN', read: async () => SVC_TOKEN } : undefined
  if (flag !== '-' && !flag.startsWith('@')) throw onCommandLine('--token')
  let token: Promise<string> | undefined
  return {
    source: '--token',
    read() {
      token ??= readSecret(flag, '--token')
      return token
    },
  }
}

const onCommandLine = (flag: string): Error =>
  usageError(
    `${flag} takes no value on the command line, where others can read it`,
    `${flag} - reads standard input, ${flag} @file reads a file`,
  )

/**
 * Prompts write unmarked control sequences, which are allowed here: so their texts have to be escaped before.
 * Writes are not buffered: otherwise later output would overtake the end of the prompt's line.
 */
const promptContext = (): { output: NodeJS.WritableStream } => {
  const { stderr } = process
  const output = new Writable({
    decodeStrings: false,
    write: (text: string, _, done) => {
      stderr.write(allowSequence(text))
      done()
    },
  })
  return {
    output: Object.assign(output, { isTTY: stderr.isTTY, columns: stderr.columns, rows: stderr.rows }),
  }
}

type PromptOptions = {
  mayBeEmpty?: boolean
  /** Cancels the prompt. */
  signal?: AbortSignal
}

/** The mark before a question, and what may follow it: `(y/N)` and the first letters of an answer. */
const beside = 2 + 10

/** A question that the terminal does not break within a word, as the library does. */
const questionText = (message: string): string =>
  wrapWords(escapeToOneLine(message), (process.stderr.columns ?? Number.POSITIVE_INFINITY) - beside).join(
    '\n',
  )

export async function askText(
  message: string,
  initial?: string,
  { mayBeEmpty = false, signal }: PromptOptions = {},
): Promise<string> {
  const { input } = await import('@inquirer/prompts')
  const question = {
    message: questionText(message),
    required: !mayBeEmpty,
    transformer: escapeControls,
    // Nobody can confirm a default that cannot be displayed as it is.
    ...(initial !== undefined && hasNoControls(initial) && { default: initial }),
  }
  return input(question, { ...promptContext(), ...(signal && { signal }) })
}

export async function askChoice(
  message: string,
  choices: { value: string; name: string }[],
): Promise<string> {
  const { select } = await import('@inquirer/prompts')
  const shown = choices.map(({ value, name }) => ({ value, name: escapeToOneLine(name) }))
  return select({ message: questionText(message), choices: shown }, promptContext())
}

export async function askSecret(message: string): Promise<string> {
  const { password } = await import('@inquirer/prompts')
  return password({ message: questionText(message), mask: '*' }, promptContext())
}

export async function askYesNo(message: string, initial = false): Promise<boolean> {
  const { confirm } = await import('@inquirer/prompts')
  return confirm({ message: questionText(message), default: initial }, promptContext())
}

/** Says what is about to be changed, before anybody is asked. */
export function printTarget({ active, url }: Pick<Settings, 'active' | 'url'>): void {
  printNote(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
}

type Confirmation = {
  /** Agreed on the command line. */
  yes: boolean | undefined
  interactive: boolean
  /** What to do where nobody can be asked. */
  hint: string
  /** The error after a no. */
  refused?: { message?: string; exit?: number }
}

/** Returns only after a yes. @throws usageError where nobody can be asked, CliError `not_confirmed` after a no */
export async function confirmOrThrow(
  question: string,
  { yes, interactive, hint, refused: { message = 'Nothing was changed', exit } = {} }: Confirmation,
): Promise<void> {
  if (yes) return
  if (!interactive) throw usageError('Missing --yes', hint)
  if (await askYesNo(question)) return
  throw new CliError(message, { code: 'not_confirmed', ...(exit !== undefined && { exit }) })
}
