import type { Finding } from '../core/finding.ts'
import { confirmOrThrow, isInteractive } from './ask.ts'
import { selectColumns } from './columns.ts'
import { exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { type Output, rowPrinter, writeStdout } from './print.ts'
import { type FlagSettings, resolveSettings } from './settings.ts'
import { clearStatus, printNote } from './stderr-notes.ts'
import { type Style, styleFor } from './style.ts'
import { escapeToOneLine } from './table.ts'
import { wrapWords } from './text-width.ts'

type Repair = { plan: string; run(): Promise<unknown> }

/** What to print of a finding, and of each in csv and tables. */
const columns = ['state', 'check', 'message', 'reason', 'remedy']
const usual = ['state', 'check', 'message', 'remedy']

/** Checks before the examination that its result can be printed as requested. */
export function checkFindingOutput(output: Output): void {
  selectColumns(output, columns, usual)
  if (output.format === 'id') throw usageError('Findings have no id to print', 'use --json')
}

/** Asks for permission, unless `yes`, and repairs what can be. Returns whether something was changed. */
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
  await confirmOrThrow('Do this?', {
    yes: flags.yes,
    interactive: isInteractive(resolveSettings(flags)),
    hint: 'without a person to ask, --fix --yes does the above',
    // Not 1, which says that there are warnings.
    refused: { exit: exitCodes.usage },
  })
  for (const { plan, run } of repairs) {
    try {
      await run()
      printNote(`Done: ${plan}`)
    } catch (error) {
      printNote(`Failed: ${plan}: ${(error as Error).message}`)
    }
  }
  return true
}

/** As other programs that examine have them (nagios-plugins); the other codes of svc mean that the examination failed. */
const exitOf = { warnings: 1, errors: 2 }

/** Prints all findings; JSON has `more` besides. @throws SilentExit with 1 when the worst is a warning, 2 when it is an error */
export async function printFindings(
  output: Output,
  findings: readonly Finding[],
  { more = {}, width = process.stdout.columns }: { more?: object; width?: number | undefined } = {},
): Promise<void> {
  clearStatus()
  const counts = countsOf(findings)
  if (output.format === 'plain' && output.columns === undefined) {
    await writeStdout(renderFindings(findings, styleFor(process.stdout), width))
  } else {
    const printer = rowPrinter(output, selectColumns(output, columns, usual))
    await printer.rows([...findings])
    await printer.end((rows) => ({ ...more, findings: rows, ...counts }))
  }
  if (counts.errors > 0) throw new SilentExit(exitOf.errors)
  if (counts.warnings > 0) throw new SilentExit(exitOf.warnings)
}

function countsOf(findings: readonly Finding[]) {
  const count = (state: Finding['state']) => findings.filter((one) => one.state === state).length
  return { errors: count('error'), warnings: count('warning'), passed: count('ok') }
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
  const { errors, warnings, passed } = countsOf(findings)
  if (errors + warnings === 0) return style.good('All is well')
  const parts = [
    ...(errors > 0 ? [style.bad(`${errors} ${errors === 1 ? 'error' : 'errors'}`)] : []),
    ...(warnings > 0 ? [style.warning(`${warnings} ${warnings === 1 ? 'warning' : 'warnings'}`)] : []),
    `${passed} passed`,
  ]
  return parts.join(', ')
}

/** Answers of other machines are in these texts. */
const wrapped = (text: string, width = Number.POSITIVE_INFINITY): string[] =>
  wrapWords(escapeToOneLine(text), width)
