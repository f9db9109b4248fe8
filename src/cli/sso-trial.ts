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
    description: 'Try a complete sign-in in a browser, without creating a session, and show every step',
    exclusive: ['dry-run'],
  }),
  'no-browser': booleanFlag({
    description: 'Print the address instead of opening a browser; with --login',
    dependsOn: ['login'],
  }),
}

type TrialReply = ReplyOf<typeof ssoTrials.show>

/** Tries a provider with a real sign-in; exits with 0 when it would be accepted and 1 when not. */
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
  new CliError('The browser returned before the trial finished', {
    code: 'trial_pending',
    hint: 'start again: svc sso test PROVIDER --login',
  })

const pause = 3000

/** A browser on another machine cannot return here: the service reports when the trial has finished. */
async function isOver(
  run: CommandContext,
  id: string,
  testId: string,
): Promise<{ trial: 'passed' | 'failed' }> {
  for (;;) {
    await sleep(pause, undefined, { ref: false })
    const { status } = await run.client.call(ssoTrials.show, { params: { id, testId } })
    if (status === 'pending') continue
    // A browser on this machine is about to return here.
    await sleep(1000)
    return { trial: status }
  }
}

/** One line per step, with the received values below, and the remedy below a failed step. */
export function formatSteps({ status, steps }: TrialReply, style: Style): string {
  const lines = steps.flatMap(({ step, ok, received, code, hint }) => [
    `${ok ? style.good('✓') : style.bad('✗')} ${escapeToOneLine(step)}`,
    ...(received === null ? [] : [style.dim(`    ${escapeToOneLine(received)}`)]),
    ...(code === null ? [] : [`    Code: ${escapeToOneLine(code)}`]),
    ...(hint === null ? [] : [`    Hint: ${escapeToOneLine(hint)}`]),
  ])
  const end =
    status === 'passed'
      ? 'The sign-in would be accepted. This was a trial: no session was created.'
      : 'The sign-in does not work'
  return `${[...lines, end].join('\n')}\n`
}
