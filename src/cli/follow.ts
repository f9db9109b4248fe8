import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import type { CommandContext } from './base.ts'
import type { Column } from './columns.ts'
import { exitCodes, usageError } from './exit-codes.ts'
import { readFileIfExists, writePrivateFile } from './files.ts'
import { booleanFlag, type FlagSet, linesFlag, textFlag } from './flags.ts'
import { linePrinter } from './line-printer.ts'
import { printNote } from './print.ts'
import { flushNotes } from './stderr-notes.ts'

/** How far each of the logs that are followed was read. */
export type Positions = Readonly<Record<string, number>>

export type Batch = {
  rows: unknown[]
  at: Positions
  /** There is more at once. */
  more: boolean
}

export type FollowSource = {
  /** The last rows there are, when nothing was read before. */
  newest(lines: number): Promise<Batch>
  after(at: Positions): Promise<Batch>
}

export const followFlags: FlagSet = {
  follow: booleanFlag({ char: 'f', description: 'Go on with what comes in, until Ctrl-C' }),
  lines: linesFlag,
  after: textFlag('Go on where this cursor says, with all that came in since', 'CURSOR', ['cursor-file']),
  'cursor-file': textFlag('Go on where this file says, and keep in it how far it went', 'FILE'),
}

const minPollMs = 500
const maxPollMs = 5000
const maxRetryMs = 30_000

/** Prints what is new, and what comes then; each row once, also over restarts of the service or of this command. */
export async function follow(
  run: CommandContext,
  flags: Record<string, unknown>,
  {
    kind,
    columns,
    known,
    source,
  }: { kind: string; columns: Column[]; known: Column[]; source: FollowSource },
): Promise<void> {
  const print = linePrinter(run.output, columns, known)
  const file = flags['cursor-file'] as string | undefined
  const following = flags.follow === true
  const text = file === undefined ? (flags.after as string | undefined) : readFileIfExists(file)?.trim()
  // A file that is empty is one nothing was kept in yet.
  const isNew = text === undefined || (text === '' && file !== undefined)
  let at = isNew ? undefined : parseCursor(text, kind)
  const leave = () => {
    if (at && (file === undefined || !existsSync(file)))
      printNote(`To go on from here: --after ${formatCursor(at, kind)}`)
  }
  const interrupted = onInterrupt(leave)
  try {
    for (let pause = minPollMs; ; ) {
      const from = at
      const read = () =>
        from === undefined ? source.newest((flags.lines as number | undefined) ?? 10) : source.after(from)
      const batch = following && from !== undefined ? await retryUntilAvailable(read) : await read()
      await interrupted.while(async () => {
        await print(batch.rows)
        const moved = formatCursor(batch.at, kind)
        if (file !== undefined && (at === undefined || moved !== formatCursor(at, kind)))
          writePrivateFile(file, `${moved}\n`)
        at = batch.at
      })
      // Nobody waits for the end of this to be told of it.
      if (following) flushNotes()
      if (batch.more) continue
      if (!following) break
      pause = batch.rows.length > 0 ? minPollMs : Math.min(maxPollMs, pause * 1.5)
      await sleep(pause)
    }
  } finally {
    leave()
  }
}

/** What is printed is written down before the command ends; a second Ctrl-C does not wait for that. */
function onInterrupt(leave: () => void) {
  let busy = false
  let asked = false
  const end = () => {
    leave()
    process.exit(exitCodes.interrupted)
  }
  process.removeAllListeners('SIGINT')
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (asked || !busy) end()
      asked = true
    })
  }
  return {
    async while(work: () => Promise<void>): Promise<void> {
      busy = true
      await work()
      busy = false
      if (asked) end()
    },
  }
}

/** Waits out a service that is restarted or overloaded. */
export async function retryUntilAvailable<T>(work: () => Promise<T>): Promise<T> {
  for (let pause = 1000, told = false; ; pause = Math.min(maxRetryMs, pause * 2)) {
    try {
      const result = await work()
      if (told) printNote('The service answers again')
      return result
    } catch (error) {
      if (!isTransient(error)) throw error
      if (!told) printNote(`${(error as Error).message}: trying again until it answers`)
      told = true
      const asked = error instanceof ApiError ? (error.retryAfter ?? 0) * 1000 : 0
      await sleep(Math.max(asked, pause))
    }
  }
}

const isTransient = (error: unknown): boolean =>
  error instanceof NetworkError ||
  error instanceof TimeoutError ||
  (error instanceof ApiError && [429, 502, 503, 504].includes(error.status))

const formatCursor = (at: Positions, kind: string): string =>
  Buffer.from(JSON.stringify({ [kind]: at })).toString('base64url')

function parseCursor(text: string, kind: string): Positions {
  try {
    const { [kind]: at } = JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, Positions>
    if (at && Object.values(at).every((place) => Number.isSafeInteger(place) && place >= 0)) return at
  } catch {
    // Said below.
  }
  throw usageError(`This is no cursor of svc ${kind} tail: ${text.slice(0, 60)}`)
}

/** Rows of several logs as one: each in its own order, together as close to that of `timeOf` as it allows. */
export function mergeByTime<R>(logs: R[][], timeOf: (row: R) => string): R[] {
  const timed = logs.flatMap((rows) => {
    let latest = ''
    return rows.map((row) => {
      if (timeOf(row) > latest) latest = timeOf(row)
      return { row, latest }
    })
  })
  return timed.sort((a, b) => (a.latest < b.latest ? -1 : a.latest > b.latest ? 1 : 0)).map(({ row }) => row)
}
