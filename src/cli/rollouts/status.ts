import { setTimeout as sleep } from 'node:timers/promises'
import { agentRollouts, type RolloutProgress } from '../../agents/rollouts/contract.ts'
import { allowSequence, stripStyles } from '../../core/terminal.ts'
import type { Session } from '../base.ts'
import { exits, Silent, usage } from '../exit.ts'
import { persistently } from '../follow.ts'
import { releaseNotes } from '../notes.ts'
import { asJson, checkPrintable, printRecord, write } from '../print.ts'
import { waiting } from '../progress.ts'
import { resolveId } from '../resolve.ts'
import { styleFor } from '../style.ts'
import { widthOf } from '../table.ts'
import { latestRollout } from './latest.ts'
import { rolloutLine, rolloutLines } from './lines.ts'

type Options = { named: string | undefined; watch: boolean; exitCode: boolean }

const everyMs = 5000

/** Shows how far a rollout is; with `watch` until nothing more happens by itself. */
export async function showStatus(session: Session, { named, watch, exitCode }: Options): Promise<void> {
  const { client, output } = session
  checkPrintable(output, agentRollouts.show.reply)
  const id =
    named === undefined ? await latestRollout(session) : await resolveId(client, 'agent_rollout', named)
  const read = () => client.call(agentRollouts.show, { params: { id } })
  let now = await waiting('Waiting for the service', read())
  if (watch) now = await follow(session, now, read)
  else await print(session, now)
  if (exitCode && isBad(now)) throw new Silent(exits.failure)
}

const isBad = ({ status }: RolloutProgress): boolean =>
  status === 'halted' || status === 'aborted' || status === 'rolled_back'

/** What a person has to decide about, or nobody any more. */
const isAtRest = ({ next }: RolloutProgress): boolean => next === null || next.step === 'decide'

async function print({ output }: Session, it: RolloutProgress): Promise<void> {
  const style = styleFor(process.stdout)
  await printRecord(output, it, agentRollouts.show.reply, () => rolloutLines(it, style, Date.now()))
}

async function follow(
  session: Session,
  first: RolloutProgress,
  read: () => Promise<RolloutProgress>,
): Promise<RolloutProgress> {
  const show = await screen(session)
  releaseNotes()
  for (let it = first; ; it = await persistently(read)) {
    await show(it)
    if (isAtRest(it)) return it
    await sleep(everyMs)
  }
}

/** How many lines of a terminal a text takes that ends with one. */
export const linesTaken = (text: string, columns: number): number =>
  stripStyles(text)
    .split('\n')
    .slice(0, -1)
    .reduce((lines, line) => lines + Math.max(1, Math.ceil(widthOf(line) / columns)), 0)

/** At a terminal it is drawn anew; elsewhere a line is printed when something has changed. */
async function screen({ output }: Session): Promise<(it: RolloutProgress) => Promise<void>> {
  const isJson = output.format === 'json' || output.format === 'ndjson'
  if (output.format !== 'plain' && !isJson)
    throw usage('--watch draws the status, or prints it as NDJSON', 'use --json')
  if (!isJson && process.stdout.isTTY && process.env.TERM !== 'dumb') {
    const style = styleFor(process.stdout)
    let drawn = 0
    return async (it) => {
      const text = rolloutLines(it, style, Date.now())
      await write(allowSequence(`${drawn > 0 ? `\u001b[${drawn}A` : ''}\u001b[0J`) + text)
      drawn = linesTaken(text, process.stdout.columns)
    }
  }
  let last = ''
  return async (it) => {
    const line = isJson ? `${asJson(it)}\n` : rolloutLine(it)
    if (line !== last) await write(line)
    last = line
  }
}
