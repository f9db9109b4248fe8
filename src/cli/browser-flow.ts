import { askText } from './ask.ts'
import type { CommandContext } from './base.ts'
import { openBrowser } from './browser.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { type BrowserCallback, startLoopback } from './loopback.ts'
import { printNote } from './print.ts'
import { flushNotes } from './stderr-notes.ts'

/** How long a sign-in may last at the service, too. */
const flowTimeoutMs = 10 * 60_000

type BrowserFlowOptions = {
  /** The address is printed, and no browser opened. */
  noBrowser: boolean
  /** Reads where a browser on another machine ended up, which a person pastes. */
  parsePasted?: (text: string) => BrowserCallback | undefined
  /** Another sign that the browser is through. */
  done?: () => Promise<BrowserCallback>
}

/**
 * Sends a person's browser on a way that ends at this program, and waits for it.
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
    // It has to be seen before the end, also where a failure is to be the only line.
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
    const tooLate = new CliError('Nobody came back from the sign-in within 10 minutes', {
      exit: exitCodes.timeout,
      code: 'timeout',
      hint: 'begin again; on another machine, --no-browser prints the address and takes where it ends',
    })
    const timer = setTimeout(() => reject(tooLate), flowTimeoutMs)
    void callback.then((one) => {
      clearTimeout(timer)
      resolve(one)
    })
  })
}

/** Asks until the answer makes sense, or the browser came by itself. */
async function paste(
  parsePasted: (text: string) => BrowserCallback | undefined,
  callback: Promise<BrowserCallback>,
): Promise<BrowserCallback> {
  const came = new AbortController()
  void callback.then(() => came.abort())
  printNote('From a browser on another machine: paste the address that it ended at, which it cannot show')
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
    printNote('There is no code in that. Copy the whole address, with what is behind the #.')
  }
}
