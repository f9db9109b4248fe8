import { didYouMean } from '../core/suggest.ts'
import { type ErrorReport, toReport } from './error-report.ts'
import { type CliError, exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { wantsJson, wrapNote } from './stderr-notes.ts'

/** The fields of oclif errors that are used here. */
type OclifError = Error & {
  code?: string
  oclif?: { exit?: number }
  flags?: string[]
  parse?: { input?: { flags?: Record<string, unknown> } }
}

const stripParserText = (message: string): string =>
  message
    .replace(/^Parsing (--\S+) \n\tExpected an (integer.*) but received: /, '$1 must be an $2, not ')
    .replace(/^Parsing --\S+ \n\t/, '')
    .replace(/\n?See more help with --help/g, '')

/** Reports a failure on standard error and returns the exit code. */
export async function fail(error: unknown, argv: string[]): Promise<number> {
  if (error instanceof SilentExit) return error.exit
  const oclif = error as OclifError
  // The parser puts its own words around those of a flag.
  if (error instanceof Error) error.message = stripParserText(error.message)
  // `this.exit()` of a command, which has said everything itself.
  if (oclif.code === 'EEXIT') return oclif.oclif?.exit ?? 0
  const expected = toReport(error) ?? fromOclif(oclif, argv)
  const report = expected ?? unexpected(error)
  // First: the last line is the error, as JSON with --json.
  if (process.env.SVC_DEBUG && error instanceof Error) process.stderr.write(stacks(error, !expected))
  if (wantsJson(argv)) process.stderr.write(`${JSON.stringify({ error: report.error })}\n`)
  else process.stderr.write(await text(report))
  return report.exit
}

/** Of a bug, and of what caused a failure. */
function stacks({ stack, cause }: Error, isBug: boolean): string {
  const own = isBug ? `${stack}\n` : ''
  return cause instanceof Error ? `${own}Caused by: ${cause.stack}\n` : own
}

async function text({ error, notes }: ErrorReport): Promise<string> {
  const { styleFor } = await import('./style.ts')
  const { escapeToOneLine: printable } = await import('./table.ts')
  const style = styleFor(process.stderr)
  const tidy = (words: string) => words.split('\n').map(printable).join('\n')
  // What a service answered has one line: more could be taken for what this program says.
  const said = error.status === null ? tidy : printable
  const lines = [`${style.bad('Error:')} ${notes.map(said).join('\n  ') || said(error.message)}`]
  if (error.hint) lines.push(`${style.dim('Hint:')} ${tidy(error.hint)}`)
  if (error.requestId)
    lines.push(
      style.dim(`Request: ${printable(error.requestId)} (${printable(error.code)}, ${error.status})`),
    )
  return `${lines.flatMap((line) => line.split('\n').map(wrapNote)).join('\n')}\n`
}

function fromOclif(error: OclifError, argv: string[]): ErrorReport | undefined {
  if (error.oclif === undefined) return undefined
  const message = error.message
    .replace(/^The following errors? occurred:\s*/, '')
    .replace(/^Missing \d+ required args?:\n(.*)$/s, (_, args: string) => missingArgs(args))
    .replace(/Missing required flag (\S+)/g, 'Missing --$1')
    .replace(/^Nonexistent flag(s?): /, 'Unknown flag$1: ')
    .trim()
  return {
    exit: error.oclif.exit ?? exitCodes.usage,
    notes: [],
    error: { ...nothing, code: 'usage', message, hint: hintFor(error, argv) },
  }
}

/** The parser lists missing arguments with their descriptions, one per line, and may add advice after an empty line. */
function missingArgs(text: string): string {
  const [list = ''] = text.split('\n\n')
  return `Missing ${[...list.matchAll(/^\w+/gm)].map(([name]) => name.toUpperCase()).join(' and ')}`
}

const nothing = { status: null, requestId: null, hint: null }

function hintFor(error: OclifError, argv: string[]): string | null {
  // Words after a flag may be its value.
  const end = argv.findIndex((word) => !/^[a-z][a-z-]*$/.test(word))
  const help = `svc ${argv.slice(0, end === -1 ? 2 : Math.min(2, end)).join(' ')} --help`
  const wrong = error.flags?.[0]
  if (wrong !== undefined) {
    const known = Object.keys(error.parse?.input?.flags ?? {})
    return didYouMean(wrong.replace(/^-+/, '').replace(/=.*/, ''), known, (word) => `--${word}`) ?? help
  }
  const option = /^Expected (?:--\S+=)?(.*) to be one of: (.*)$/m.exec(error.message)
  if (option) return didYouMean(option[1]!, option[2]!.split(', ')) ?? help
  return help
}

export function unknownCommand(id: string, ids: string[]): CliError {
  if (id.startsWith('-'))
    return usageError(`${id} is not a command`, 'flags come after the command: svc orgs --json')
  const typed = id.replaceAll(':', ' ')
  const known = ids.map((one) => one.replaceAll(':', ' '))
  const topic = `${typed.split(' ')[0]} `
  const inTopic = known.filter((one) => one.startsWith(topic)).map((one) => one.slice(topic.length))
  const hint =
    didYouMean(typed, known, (one) => `svc ${one}`) ??
    (inTopic.length > 0 ? `svc ${topic}has: ${inTopic.join(', ')}` : 'svc --help lists the commands')
  return usageError(`There is no command "${typed}"`, hint)
}

function unexpected(error: unknown): ErrorReport {
  const message = error instanceof Error ? error.message : String(error)
  return {
    exit: exitCodes.failure,
    notes: [],
    error: {
      ...nothing,
      code: 'internal',
      message: `Unexpected failure: ${message}`,
      hint: 'SVC_DEBUG=1 prints the stack',
    },
  }
}
