import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { ApiError } from '../core/client.ts'
import { auth } from '../identity/contract.ts'
import { version } from '../version.ts'
import { askChoice, askText, confirmOrThrow, readSecret } from './ask.ts'
import type { CommandContext } from './base.ts'
import { openBrowser } from './browser.ts'
import { chooseStore } from './choose-credential-store.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { isTransient } from './follow.ts'
import { completeLogin, type LoginFlags, sessionNotKept, warnIfUnencrypted } from './login.ts'
import { printNote } from './print.ts'
import { flushNotes } from './stderr-notes.ts'

/** Signs in by a code that a person approves in a browser elsewhere (RFC 8628); stores the session and reports where. */
export async function loginByDeviceCode(
  run: CommandContext,
  flags: Pick<LoginFlags, 'store'> & { 'no-browser'?: boolean | undefined },
) {
  warnIfUnencrypted(run.settings.url.value)
  const store = await chooseStore(run.settings, flags.store, run.interactive)
  // Checked before the person goes to a browser.
  if (store.notKeptReason) throw sessionNotKept(store.notKeptReason)
  const started = await run.anonymous.call(auth.startDeviceAuthorization, {
    body: { client: `svc ${version} on ${hostname()}`.slice(0, 200) },
  })
  const opened = !flags['no-browser'] && openBrowser(started.verificationUrl)
  printNote(
    opened
      ? 'Your browser was opened at this address. Enter the code there:'
      : 'Open this address in a browser, on any machine, and enter the code:',
  )
  printNote(`  ${started.verificationUrl}`)
  printNote(`  ${started.userCode}`)
  printNote(`Waiting for ${started.expiresInSeconds / 60} minutes at most; Ctrl-C ends`)
  // They have to be visible before the end, even with --json.
  flushNotes()
  return completeLogin(run, store, await approved(run, started))
}

/** @returns undefined where a person signs in with a password: they choose to, or the service has no such page */
export async function loginInBrowser(run: CommandContext, flags: Pick<LoginFlags, 'store'>) {
  const way = await askChoice('How do you want to sign in?', [
    { value: 'browser', name: 'In a browser' },
    { value: 'password', name: 'With e-mail and password' },
  ])
  if (way === 'password') return undefined
  try {
    return await loginByDeviceCode(run, flags)
  } catch (error) {
    const isUnknown = error instanceof ApiError && error.status === 404
    if (!isUnknown) throw error
    printNote('This service is of a version that has no page for that: sign in with your password')
    return undefined
  }
}

type Started = { deviceCode: string; expiresInSeconds: number; intervalSeconds: number }

/** Asks until somebody has approved it. The service ends it: the last answer is that the code has expired. */
async function approved(run: CommandContext, { deviceCode, expiresInSeconds, intervalSeconds }: Started) {
  const tries = Math.ceil(expiresInSeconds / intervalSeconds) + 1
  for (let n = 0; n < tries; n += 1) {
    await sleep(intervalSeconds * 1000)
    try {
      return await run.anonymous.call(auth.pollDeviceAuthorization, { body: { deviceCode } })
    } catch (error) {
      const code = error instanceof ApiError ? error.code : undefined
      if (code === 'invalid_device_code') break
      // A person is in a browser meanwhile: a service that is away for a moment does not end it.
      if (code !== 'authorization_pending' && !isTransient(error)) throw error
    }
  }
  throw new CliError('Nobody approved the sign-in in time', {
    exit: exitCodes.timeout,
    code: 'timeout',
    hint: 'start again: svc login --device',
  })
}

type DecisionFlags = {
  'user-code'?: string | undefined
  deny?: boolean | undefined
  yes?: boolean | undefined
}

/** Approves or denies the sign-in of another terminal, after saying what asks. */
export async function decideDeviceLogin(run: CommandContext, flags: DecisionFlags) {
  const userCode = await readUserCode(run, flags['user-code'])
  const { client, ip } = await run.client.call(auth.previewDeviceAuthorization, { body: { userCode } })
  const decision = flags.deny ? 'deny' : 'approve'
  if (decision === 'approve') {
    // The address first: the name is chosen by whoever asks.
    const what = `A terminal at ${ip}, which calls itself "${client}", wants to act as you`
    await confirmOrThrow(`${what}. Approve?`, {
      yes: flags.yes,
      interactive: run.interactive,
      hint: what,
    })
  }
  await run.client.call(auth.decideDeviceAuthorization, { body: { userCode, decision } })
  return { decision, client, ip }
}

async function readUserCode(run: CommandContext, given: string | undefined): Promise<string> {
  if (given !== undefined) return readSecret(given, '--user-code')
  if (!run.interactive) throw usageError('Missing --user-code')
  return askText('Code that the other terminal shows')
}
