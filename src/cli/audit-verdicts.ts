import type { RestoreReport, Verdict } from '../audit/verifier/verdict.ts'
import type { CommandContext } from './base.ts'
import { exitCodes, SilentExit } from './exit-codes.ts'
import { printNote, printRecord, writeStdout } from './print.ts'
import { formatEntries, formatNumber } from './progress.ts'
import { styleFor } from './style.ts'
import { escapeToOneLine } from './table.ts'

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
    const style = styleFor(process.stdout)
    for (const one of chains) await writeStdout(`${lineFor(one, style)}\n`)
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

type Style = Awaited<ReturnType<typeof styleFor>>

function lineFor({ name: bare, deletedAt, ...verdict }: NamedVerdict, style: Style): string {
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
      ...(one.pin === 'new' ? ['pinned without comparison: there was no pin before'] : []),
    ]
    const restores = one.restores.map((restore) => `\n  ${formatRestore(restore)}`)
    return `${style.good('Sound:')} ${parts.join(', ')}${restores.join('')}`
  }
  if (one.verdict === 'unverifiable')
    return `${style.warning('Cannot tell:')} ${one.name}: ${escapeToOneLine(one.fault.message)}`
  const { seq, kind, message, entry } = one.fault
  const about = [entry?.id && `id ${entry.id}`, entry?.action && `action ${entry.action}`, entry?.timestamp]
    .filter((text) => text !== undefined && text !== '')
    .map((text) => escapeToOneLine(String(text)))
  const found = `${one.name}, entry ${seq}, ${kind}: ${escapeToOneLine(message)}`
  return `${style.bad('TAMPERED:')} ${found}${about.length > 0 ? `\n  ${about.join(', ')}` : ''}`
}
