import { ApiError } from '../core/client.ts'
import { confirmOrThrow, printTarget, readStdin } from './ask.ts'
import type { CommandContext } from './base.ts'
import type { ParsedInput } from './command-view.ts'
import { addEffects, type Effect, formatEffect } from './effect.ts'
import { toReport } from './error-report.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { formatNumber } from './progress.ts'
import { printNote } from './stderr-notes.ts'

/** Names that a question lists; of further ones the number is said. */
const maxNamed = 10

/** So many effects are added up before a question. */
const maxCounted = 50

type Each = {
  command: string
  warning: string | undefined
  /** What each deletion does. */
  summary: string
  effect(name: string): Promise<Effect | undefined>
  /** Deletes the one that it is given, without asking. */
  perform(session: CommandContext, name: string): Promise<void>
}

/** The records to delete: `-` stands for those that standard input names, one a line. */
export async function namesToDelete(given: readonly string[]): Promise<string[]> {
  const names: string[] = []
  for (const name of given) {
    if (name !== '-') names.push(name)
    else names.push(...(await readStdin('the names')).split('\n').map((line) => line.trim()))
  }
  const distinct = [...new Set(names.filter((name) => name !== ''))]
  if (distinct.length === 0) throw usageError('Standard input names nothing to delete')
  return distinct
}

/**
 * Deletes several records one after the other, after one question. One that cannot be deleted does not keep the others: the
 * exit code is that of the failures where all have the same one, else 1. @throws what would stop every other one too
 */
export async function deleteEach(
  session: CommandContext,
  typed: ParsedInput,
  names: readonly string[],
  { command, perform, ...each }: Each,
): Promise<void> {
  const { output, settings, interactive } = session
  if (typed.flags['dry-run'] !== true) {
    printTarget(settings)
    printNote(`${formatNumber(names.length)}: ${listed(names)}`)
    const yes = typed.flags.yes === true
    if (!yes && interactive) printNote(await effectOfAll(names, each))
    const { warning } = each
    const question = warning
      ? `${warning}. Go on with each of them?`
      : 'Delete all of them? This cannot be undone'
    await confirmOrThrow(question, {
      yes,
      interactive,
      hint: `svc ${command} NAME... --yes deletes without asking`,
      refused: { message: `Nothing was ${warning ? 'changed' : 'deleted'}` },
    })
  }
  // Several documents of JSON in a row, a line each.
  const lines =
    output.format === 'json' && output.jq === undefined ? { ...output, format: 'ndjson' as const } : output
  const exits = new Set<number>()
  const failed: string[] = []
  for (const [at, name] of names.entries()) {
    try {
      await perform({ ...session, output: lines }, name)
    } catch (failure) {
      if (!isAboutOne(failure)) {
        if (at > 0)
          printNote(`Done before: ${formatNumber(at - failed.length)} of ${formatNumber(names.length)}`)
        throw failure
      }
      failed.push(name)
      const report = toReport(failure)!
      exits.add(report.exit)
      printNote(`${name}: ${report.error.message}`)
    }
  }
  if (failed.length === 0) return
  const [exit = exitCodes.failure, ...others] = exits
  throw new CliError(
    `${formatNumber(failed.length)} of ${formatNumber(names.length)} failed: ${listed(failed)}`,
    {
      code: 'partly_failed',
      exit: others.length === 0 ? exit : exitCodes.failure,
    },
  )
}

async function effectOfAll(names: readonly string[], { effect, summary }: Pick<Each, 'effect' | 'summary'>) {
  if (names.length > maxCounted) return summary
  let sum: Effect | undefined
  for (const name of names) {
    try {
      const one = await effect(name)
      if (!one) return summary
      sum = addEffects(sum ?? {}, one)
    } catch (failure) {
      // Its deletion will say so.
      if (!isAboutOne(failure)) throw failure
    }
  }
  return formatEffect(sum, summary)
}

function listed(names: readonly string[]): string {
  const more = names.length - maxNamed
  return `${names.slice(0, maxNamed).join(', ')}${more > 0 ? ` and ${formatNumber(more)} more` : ''}`
}

/** Whether the next record may do better: not without a session, a service or an answer. */
function isAboutOne(failure: unknown): boolean {
  if (failure instanceof ApiError) return failure.status < 500 && ![401, 429].includes(failure.status)
  return failure instanceof CliError && failure.exit !== exitCodes.authentication
}
