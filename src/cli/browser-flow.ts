import { askText } from './ask.ts'
import type { CommandContext } from './base.ts'
import { openBrowser } from './browser.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { type BrowserCallback, startLoopback } from './loopback.ts'
import { printNote } from './print.ts'
import { flushNotes } from './stderr-notes.ts'

/** Time limit of a sign-in, the same as at the service. */
const flowTimeoutMs = 10 * 60_000

type BrowserFlowOptions = {
  /** Print the address instead of opening a browser. */
  noBrowser: boolean
  /** Parses the final address of a browser on another machine, which a person pastes. */
  parsePasted?: (text: string) => BrowserCallback | undefined
  /** Another signal that the browser has finished. */
  done?: () => Promise<BrowserCallback>
}

/**
 * Opens a browser for a flow that redirects to this program, and waits for it.
 * @throws CliError when nobody comes back in time
 */
export async function runBrowserFlow(
  { interactive }: CommandContext,
  addressFor: (redirect: string) => Promise<string>,
  { noBrowser, parsePasted, done }: BrowserFlowOptions,
): Promise<{ callback: BrowserCallback; close: () => Promise<void> }> {
  const { redirect, callback, close } = await startLoopback()
  try {
    const address = await addressFor(redirect)
    // The address has to be visible before the end, even with --json.
    flushNotes()
    const opened = !noBrowser && openBrowser(address)
    printNote(opened ? 'Your browser was opened at' : 'Open this address in a browser:')
    printNote(`  ${address}`)
    printNote('Waiting for the sign-in there, for 10 minutes at most; Ctrl-C ends')
    const ways = [inTime(callback)]
    if (done) ways.push(done())
    if (parsePasted && !opened && interactive) ways.push(paste(parsePasted, callback))
    return { callback: await Promise.race(ways), close }
  } catch (error) {
    await close()
    throw error
  }
}

function inTime(callback: Promise<BrowserCallback>): Promise<BrowserCallback> {
  return new Promise((resolve, reject) => {
    const tooLate = new CliError('The sign-in was not completed within 10 minutes', {
      exit: exitCodes.timeout,
      code: 'timeout',
      hint: 'start again; --no-browser prints the address for another machine and accepts the final address',
    })
    const timer = setTimeout(() => reject(tooLate), flowTimeoutMs)
    void callback.then((one) => {
      clearTimeout(timer)
      resolve(one)
    })
  })
}

/** Prompts until the answer is valid, or the browser returns by itself. */
async function paste(
  parsePasted: (text: string) => BrowserCallback | undefined,
  callback: Promise<BrowserCallback>,
): Promise<BrowserCallback> {
  const came = new AbortController()
  void callback.then(() => came.abort())
  printNote('In a browser on another machine: paste the final address, a page that it cannot open')
  for (;;) {
    const text = await askText('Address or code', undefined, { signal: came.signal }).catch(
      (error: Error) => {
        if (came.signal.aborted) return undefined
        throw error
      },
    )
    if (text === undefined) return callback
    const found = parsePasted(text.trim())
    if (found) return found
    printNote('There is no code in that. Copy the complete address, including the part after the #.')
  }
}
