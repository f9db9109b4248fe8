import { askText } from './ask.ts'
import type { Session as Run } from './base.ts'
import { openBrowser } from './browser.ts'
import { CliError, exits } from './exit.ts'
import { type Arrival, loopback } from './loopback.ts'
import { releaseNotes } from './notes.ts'
import { say } from './print.ts'

/** How long a sign-in may last at the service, too. */
const patience = 10 * 60_000

type Way = {
  /** The address is printed, and no browser opened. */
  noBrowser: boolean
  /** Reads where a browser on another machine ended up, which a person pastes. */
  pasted?: (text: string) => Arrival | undefined
  /** Another sign that the browser is through. */
  done?: () => Promise<Arrival>
}

/**
 * Sends a person's browser on a way that ends at this program, and waits for it.
 * @throws CliError when nobody comes back in time
 */
export async function visit(
  { attended }: Run,
  addressFor: (redirect: string) => Promise<string>,
  { noBrowser, pasted, done }: Way,
): Promise<{ arrival: Arrival; close: () => Promise<void> }> {
  const { redirect, arrival, close } = await loopback()
  try {
    const address = await addressFor(redirect)
    // It has to be seen before the end, also where a failure is to be the only line.
    releaseNotes()
    const opened = !noBrowser && openBrowser(address)
    say(opened ? 'Your browser was opened at' : 'Open this address in a browser:')
    say(`  ${address}`)
    say('Waiting for the sign-in there, for 10 minutes at most; Ctrl-C ends')
    const ways = [inTime(arrival)]
    if (done) ways.push(done())
    if (pasted && !opened && attended) ways.push(paste(pasted, arrival))
    return { arrival: await Promise.race(ways), close }
  } catch (error) {
    await close()
    throw error
  }
}

function inTime(arrival: Promise<Arrival>): Promise<Arrival> {
  return new Promise((resolve, reject) => {
    const tooLate = new CliError('Nobody came back from the sign-in within 10 minutes', {
      exit: exits.timeout,
      code: 'timeout',
      hint: 'begin again; on another machine, --no-browser prints the address and takes where it ends',
    })
    const timer = setTimeout(() => reject(tooLate), patience)
    void arrival.then((one) => {
      clearTimeout(timer)
      resolve(one)
    })
  })
}

/** Asks until the answer makes sense, or the browser came by itself. */
async function paste(
  arrivalIn: (text: string) => Arrival | undefined,
  arrival: Promise<Arrival>,
): Promise<Arrival> {
  const came = new AbortController()
  void arrival.then(() => came.abort())
  say('From a browser on another machine: paste the address that it ended at, which it cannot show')
  for (;;) {
    const text = await askText('Address or code', undefined, { signal: came.signal }).catch(
      (error: Error) => {
        if (came.signal.aborted) return undefined
        throw error
      },
    )
    if (text === undefined) return arrival
    const found = arrivalIn(text.trim())
    if (found) return found
    say('There is no code in that. Copy the whole address, with what is behind the #.')
  }
}
