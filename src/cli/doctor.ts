import type { Finding } from '../core/finding.ts'
import { askYesNo, isInteractive } from './ask.ts'
import { CliError, SilentExit, usageError } from './exit-codes.ts'
import { type Output, rowPrinter, writeStdout } from './print.ts'
import { type FlagSettings, resolveSettings } from './settings.ts'
import { clearStatus, printNote } from './stderr-notes.ts'
import { type Style, styleFor } from './style.ts'
import { displayWidth, escapeToOneLine } from './table.ts'

type Repair = { plan: string; run(): Promise<unknown> }

/** Asks for permission, unless `yes`, and repairs. Returns whether something was changed. */
export async function repair(
  repairs: readonly Repair[],
  flags: FlagSettings & { yes: boolean },
): Promise<boolean> {
  clearStatus()
  if (repairs.length === 0) {
    printNote('There is nothing that --fix can mend')
    return false
  }
  printNote('--fix would:')
  for (const { plan } of repairs) printNote(`  ${plan}`)
  if (!flags.yes) {
    if (!isInteractive(resolveSettings(flags))) {
      throw usageError('Missing --yes', 'without a person to ask, --fix --yes does the above')
    }
    if (!(await askYesNo('Do this?'))) throw new CliError('Nothing was changed', { code: 'not_confirmed' })
  }
  for (const { plan, run } of repairs) {
    await run()
    printNote(`Done: ${plan}`)
  }
  return true
}

/** As other programs that examine have them (nagios-plugins); the other codes of svc mean that the examination failed. */
const exitOf = { warnings: 1, errors: 2 }

/** Prints all findings. @throws SilentExit with 1 when the worst is a warning, 2 when it is an error */
export async function printFindings(output: Output, findings: readonly Finding[]): Promise<void> {
  clearStatus()
  const count = (state: Finding['state']) => findings.filter((one) => one.state === state).length
  const counts = { errors: count('error'), warnings: count('warning'), passed: count('ok') }
  if (output.format === 'plain' && output.columns === undefined) {
    await writeStdout(renderFindings(findings, styleFor(process.stdout), process.stdout.columns))
  } else {
    const printer = rowPrinter(output, ['state', 'check', 'message', 'remedy'])
    await printer.rows([...findings])
    await printer.end((rows) => ({ findings: rows, ...counts }))
  }
  if (counts.errors > 0) throw new SilentExit(exitOf.errors)
  if (counts.warnings > 0) throw new SilentExit(exitOf.warnings)
}

const marks = { ok: ['✓', 'good'], warning: ['!', 'warning'], error: ['✗', 'bad'] } as const

/** One block per finding, wrapped to the width of the terminal; without one, one line per sentence. */
function renderFindings(findings: readonly Finding[], style: Style, width?: number): string {
  const longest = Math.max(...findings.map(({ check }) => check.length))
  const indent = ' '.repeat(longest + 4)
  const room = width === undefined ? undefined : Math.max(20, width - indent.length)
  const lines = findings.flatMap(({ check, state, message, reason, remedy }) => {
    const [mark, tone] = marks[state]
    const texts = wrapped(message, room)
    const more = [
      ...(reason === null ? [] : wrapped(reason, room).map((line) => style.dim(line))),
      ...(remedy === null ? [] : wrapped(`→ ${remedy}`, room)),
    ]
    const [first = '', ...rest] = texts
    return [
      `${style[tone](mark)} ${check.padEnd(longest)}  ${first}`,
      ...[...rest, ...more].map((line) => indent + line),
    ]
  })
  return `${lines.join('\n')}\n\n${summary(findings, style)}\n`
}

function summary(findings: readonly Finding[], style: Style): string {
  const count = (state: Finding['state']) => findings.filter((one) => one.state === state).length
  const [errors, warnings] = [count('error'), count('warning')]
  if (errors + warnings === 0) return style.good('All is well')
  const parts = [
    ...(errors > 0 ? [style.bad(`${errors} ${errors === 1 ? 'error' : 'errors'}`)] : []),
    ...(warnings > 0 ? [style.warning(`${warnings} ${warnings === 1 ? 'warning' : 'warnings'}`)] : []),
    `${count('ok')} passed`,
  ]
  return parts.join(', ')
}

/** Breaks between words; a longer word gets a line of its own. */
function wrapped(text: string, width: number | undefined): string[] {
  const escaped = width === undefined ? text : escapeToOneLine(text)
  if (width === undefined) return [escaped]
  const lines: string[] = []
  let line = ''
  for (const word of escaped.split(' ')) {
    if (line !== '' && displayWidth(line) + 1 + displayWidth(word) > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
