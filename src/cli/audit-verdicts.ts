import type { PinState, RestoreReport, Verdict } from '../audit/verifier/verdict.ts'
import type { CommandContext } from './base.ts'
import { type Display, displayOf } from './display.ts'
import { exitCodes, SilentExit } from './exit-codes.ts'
import { printNote, printRecord, writeStdout } from './print.ts'
import { formatEntries, formatNumber } from './progress.ts'
import { escapeToOneLine } from './table.ts'
import { wrapWords } from './text-width.ts'

export type NamedVerdict = Verdict & {
  name: string
  /** Of a chain whose organization was deleted. */
  deletedAt?: string
}

/** Prints the verdicts and exits with the code of the worst. */
export async function printVerdicts({ output }: CommandContext, chains: NamedVerdict[]): Promise<void> {
  const has = (verdict: Verdict['verdict']) => chains.some((one) => one.verdict === verdict)
  const verdict = has('tampered')
    ? 'tampered'
    : has('unverifiable') || chains.length === 0
      ? 'unverifiable'
      : 'sound'
  if (output.format !== 'plain') {
    const entries = chains.reduce((sum, one) => sum + one.entries, 0)
    await printRecord(output, { verdict, entries, chains }, undefined)
  } else {
    const display = displayOf(process.stdout, output)
    for (const one of chains) await writeStdout(`${linesFor(one, display)}\n`)
    if (chains.length === 0) printNote('There is no chain you can read')
  }
  if (verdict !== 'sound')
    throw new SilentExit(verdict === 'tampered' ? exitCodes.failure : exitCodes.unverifiable)
}

function formatRestore({ time, backup, lost, state }: RestoreReport): string {
  const { from, to } = lost
  const entries =
    to === null
      ? `entries after ${formatNumber(from - 1)} may be lost`
      : to <= from
        ? `entry ${formatNumber(from)} is lost`
        : `entries ${formatNumber(from)} to ${formatNumber(to)} are lost`
  const by = {
    signed: '',
    untrusted: ' (signed by a key that no trusted key vouches for)',
    unchecked: ' (signature not checked: give --key)',
  }[state]
  const [on, of] = [time, backup.madeAt].map(escapeToOneLine)
  return `restored on ${on} from a backup of ${of}: ${entries}${by}`
}

/** The verdict in words, which a terminal does not break. */
function linesFor(verdict: NamedVerdict, { style, width }: Pick<Display, 'style' | 'width'>): string {
  const { head, text } = describeVerdict(verdict)
  const tone = { sound: style.good, unverifiable: style.warning, tampered: style.bad }[verdict.verdict]
  const wrapped = (line: string, indent: string) =>
    width === undefined ? line : wrapWords(line, width, width - indent.length).join(`\n${indent}`)
  const [first = '', ...rest] = text
  const begun = wrapped(`${head} ${first}`, '  ').slice(head.length)
  return [`${tone(head)}${begun}`, ...rest.map((line) => `  ${wrapped(line, '    ')}`)].join('\n')
}

function describeVerdict({ name: bare, deletedAt, ...verdict }: NamedVerdict): {
  head: string
  text: string[]
} {
  const one = {
    ...verdict,
    name: deletedAt === undefined ? bare : `${bare} (deleted ${escapeToOneLine(deletedAt)})`,
  }
  if (one.verdict === 'sound') {
    const parts = [
      one.name,
      `${formatEntries(one.entries)}${one.anchor ? ` after ${formatNumber(one.anchor.seq)} removed` : ''}`,
      `up to ${one.head.checksum.slice(0, 12)}`,
      ...(one.checkpoint.state === 'signed' ? [`signed ${escapeToOneLine(one.checkpoint.time)}`] : []),
      ...(one.checkpoint.state === 'unchecked' ? ['signature not checked: give --key'] : []),
      ...(pinTexts[one.pin] ?? []),
    ]
    return { head: 'Sound:', text: [parts.join(', '), ...one.restores.map(formatRestore)] }
  }
  if (one.verdict === 'unverifiable')
    return { head: 'Cannot tell:', text: [`${one.name}: ${escapeToOneLine(one.fault.message)}`] }
  const { seq, kind, message, entry } = one.fault
  const about = [entry?.id && `id ${entry.id}`, entry?.action && `action ${entry.action}`, entry?.timestamp]
    .filter((text) => text !== undefined && text !== '')
    .map((text) => escapeToOneLine(String(text)))
  const found = `${one.name}, entry ${seq}, ${kind}: ${escapeToOneLine(message)}`
  return { head: 'TAMPERED:', text: [found, ...(about.length > 0 ? [about.join(', ')] : [])] }
}

const pinTexts: { [S in PinState]?: string[] } = {
  new: ['pinned without comparison: there was no pin before'],
  kept: ['contains what was pinned'],
  vouched: ['the pinned entry was deleted, which a signed anchor covers'],
  restored: ['what was pinned was lost by a restore'],
}
