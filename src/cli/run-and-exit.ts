import { guardTerminal, onOutputFailure } from '../core/terminal.ts'
import { bufferNotes, flushNotes, wantsJson } from './stderr-notes.ts'

/** undefined: what is usual. */
let lostOutput: { exit: number; hint?: string | undefined } | undefined

/**
 * For commands whose codes say something about what they print, and for what is printed only once: how they end when it
 * cannot be written, whoever is to blame.
 */
export const exitOnLostOutput = (exit: number, hint?: string): void => {
  lostOutput = { exit, hint }
}

/**
 * Runs a command line and ends the process, with what the command failed with on standard error. Output that cannot be
 * written ends it too, in one line.
 */
export async function runAndExit(argv: string[], run: () => Promise<unknown>): Promise<never> {
  guardTerminal()
  let lost: Error | undefined
  const { promise: broken, reject } = Promise.withResolvers<never>()
  onOutputFailure((error) => {
    // A reader that closes early, such as head, is not a failure.
    if (error.code === 'EPIPE' && lostOutput?.hint === undefined) process.exit(lostOutput?.exit ?? 0)
    lost = error
    reject(error)
  })
  bufferNotes(wantsJson(argv))
  let code: number
  try {
    await Promise.race([run(), broken])
    await flushed()
    if (lost) throw lost
    flushNotes()
    code = Number(process.exitCode ?? 0)
  } catch (error) {
    const [{ fail }, { outputError }] = await Promise.all([import('./fail.ts'), import('./exit-codes.ts')])
    code = await fail(lost ? outputError(lost, lostOutput) : error, argv)
  }
  await flushed()
  process.exit(code)
}

const flushed = (): Promise<unknown> =>
  Promise.all(
    [process.stdout, process.stderr].map(
      (stream) => new Promise<void>((resolve) => void stream.write('', () => resolve())),
    ),
  )
