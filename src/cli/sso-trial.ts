import { setTimeout as sleep } from 'node:timers/promises'
import type { RawInput } from '../core/client.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import { ssoTrials } from '../sso/trials/contract.ts'
import type { CommandContext } from './base.ts'
import { runBrowserFlow } from './browser-flow.ts'
import type { ParsedInput } from './command-view.ts'
import { CliError, exitCodes, SilentExit } from './exit-codes.ts'
import { booleanFlag, type FlagSet } from './flags.ts'
import { printRecord } from './print.ts'
import { type Style, styleFor } from './style.ts'
import { escapeToOneLine } from './table.ts'

export const trialFlags: FlagSet = {
  login: booleanFlag({
    description: 'Try a whole sign-in in a browser, which lets nobody in, and tell every step',
    exclusive: ['dry-run'],
  }),
  'no-browser': booleanFlag({
    description: 'Print the address and open no browser; with --login',
    dependsOn: ['login'],
  }),
}

type TrialReply = ReplyOf<typeof ssoTrials.show>

/** Tries a provider with a real sign-in; ends with 0 when somebody would be let in and 1 when not. */
export async function tryLogin(
  run: CommandContext,
  { params }: RawInput,
  { flags }: ParsedInput,
): Promise<void> {
  const { id } = params as { id: string }
  let testId = ''
  const { close } = await runBrowserFlow(
    run,
    async (redirect) => {
      const begun = await run.client.call(ssoTrials.begin, { params: { id }, body: { redirect } })
      testId = begun.id
      return begun.loginUrl
    },
    { noBrowser: flags['no-browser'] === true, done: () => isOver(run, id, testId) },
  )
  try {
    const came = await run.client.call(ssoTrials.show, { params: { id, testId } })
    if (came.status === 'pending') throw notOver()
    const style = styleFor(process.stdout)
    await printRecord(run.output, came, ssoTrials.show.reply, () => formatSteps(came, style))
    if (came.status === 'failed') throw new SilentExit(exitCodes.failure)
  } finally {
    await close()
  }
}

const notOver = (): CliError =>
  new CliError('The browser came back before the trial was over', {
    code: 'trial_pending',
    hint: 'begin again: svc sso test PROVIDER --login',
  })

const pause = 3000

/** Where the browser is on another machine it cannot come back here: the service knows when it is over. */
async function isOver(
  run: CommandContext,
  id: string,
  testId: string,
): Promise<{ trial: 'passed' | 'failed' }> {
  for (;;) {
    await sleep(pause, undefined, { ref: false })
    const { status } = await run.client.call(ssoTrials.show, { params: { id, testId } })
    if (status === 'pending') continue
    // A browser of this machine is on its way here.
    await sleep(1000)
    return { trial: status }
  }
}

/** A step a line, and under it what was received; under the one that failed what mends it. */
export function formatSteps({ status, steps }: TrialReply, style: Style): string {
  const lines = steps.flatMap(({ step, ok, received, code, hint }) => [
    `${ok ? style.good('✓') : style.bad('✗')} ${escapeToOneLine(step)}`,
    ...(received === null ? [] : [style.dim(`    ${escapeToOneLine(received)}`)]),
    ...(code === null ? [] : [`    Code: ${escapeToOneLine(code)}`]),
    ...(hint === null ? [] : [`    Hint: ${escapeToOneLine(hint)}`]),
  ])
  const end =
    status === 'passed'
      ? 'Somebody would be let in. Nobody was: it was a trial.'
      : 'The sign-in does not work'
  return `${[...lines, end].join('\n')}\n`
}
