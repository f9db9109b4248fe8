import { setTimeout as sleep } from 'node:timers/promises'
import { agentRollouts, type RolloutProgress } from '../../agents/rollouts/contract.ts'
import type { Client } from '../../core/client.ts'
import { allowSequence, stripStyles } from '../../core/terminal.ts'
import { pollingClient } from '../api-client.ts'
import type { CommandContext } from '../base.ts'
import { exitCodes, SilentExit, usageError } from '../exit-codes.ts'
import { retryUntilAvailable } from '../follow.ts'
import { checkPrintable, printRecord, toJson, writeStdout } from '../print.ts'
import { withSpinner } from '../progress.ts'
import { resolveId } from '../resolve.ts'
import { flushNotes } from '../stderr-notes.ts'
import { styleFor } from '../style.ts'
import { displayWidth } from '../table.ts'
import { formatRollout, formatRolloutLine } from './format.ts'
import { latestRollout } from './latest.ts'

type Options = { named: string | undefined; watch: boolean; exitCode: boolean }

const pollMs = 5000

/** Shows the progress of a rollout; with `watch` until nothing more happens by itself. */
export async function showStatus(
  session: CommandContext,
  { named, watch, exitCode }: Options,
): Promise<void> {
  const { client, output } = session
  checkPrintable(output, agentRollouts.show.reply)
  const id =
    named === undefined ? await latestRollout(session) : await resolveId(client, 'agent_rollout', named)
  const readBy = (by: Client) => () => by.call(agentRollouts.show, { params: { id } })
  let now = await withSpinner('Waiting for the service', readBy(client)())
  if (watch) now = await follow(session, now, readBy(pollingClient(session.clientOptions)))
  else await print(session, now)
  if (exitCode && isBad(now)) throw new SilentExit(exitCodes.failure)
}

const isBad = ({ status }: RolloutProgress): boolean =>
  status === 'halted' || status === 'aborted' || status === 'rolled_back'

/** The rollout has ended, or waits for a decision. */
const isAtRest = ({ next }: RolloutProgress): boolean => next === null || next.step === 'decide'

async function print({ output }: CommandContext, it: RolloutProgress): Promise<void> {
  const style = styleFor(process.stdout)
  const width = process.stdout.isTTY ? process.stdout.columns : undefined
  await printRecord(output, it, agentRollouts.show.reply, () => formatRollout(it, style, Date.now(), width))
}

async function follow(
  session: CommandContext,
  first: RolloutProgress,
  read: () => Promise<RolloutProgress>,
): Promise<RolloutProgress> {
  const show = await statusPrinter(session)
  flushNotes()
  for (let it = first; ; it = await retryUntilAvailable(read)) {
    await show(it)
    if (isAtRest(it)) return it
    await sleep(pollMs)
  }
}

/** The number of terminal lines of a text that ends with a line break. */
export const wrappedLines = (text: string, columns: number): number =>
  stripStyles(text)
    .split('\n')
    .slice(0, -1)
    .reduce((lines, line) => lines + Math.max(1, Math.ceil(displayWidth(line) / columns)), 0)

/** Redrawn on a terminal; elsewhere a line is printed for each change. */
async function statusPrinter({ output }: CommandContext): Promise<(it: RolloutProgress) => Promise<void>> {
  const isJson = output.format === 'json' || output.format === 'ndjson'
  if (output.format !== 'plain' && !isJson)
    throw usageError('--watch draws the status, or prints it as NDJSON', 'use --json')
  if (!isJson && process.stdout.isTTY && process.env.TERM !== 'dumb') {
    const style = styleFor(process.stdout)
    let drawn = 0
    return async (it) => {
      const text = formatRollout(it, style, Date.now(), process.stdout.columns)
      await writeStdout(allowSequence(`${drawn > 0 ? `\u001b[${drawn}A` : ''}\u001b[0J`) + text)
      drawn = wrappedLines(text, process.stdout.columns)
    }
  }
  let last = ''
  return async (it) => {
    const line = isJson ? `${toJson(it)}\n` : formatRolloutLine(it)
    if (line !== last) await writeStdout(line)
    last = line
  }
}
