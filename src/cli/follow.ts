import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import { parseJson } from '../core/json.ts'
import type { CommandContext } from './base.ts'
import type { Column } from './columns.ts'
import { exitCodes, usageError } from './exit-codes.ts'
import { checkReplaceable, readFileIfExists, writePrivateFile } from './files.ts'
import { booleanFlag, type FlagSet, linesFlag, textFlag } from './flags.ts'
import { linePrinter, type TerminalRows } from './line-printer.ts'
import { printNote } from './print.ts'
import { flushNotes } from './stderr-notes.ts'

/** The read position in each followed log. */
export type Positions = Readonly<Record<string, number>>

export type Batch = {
  rows: unknown[]
  at: Positions
  /** More rows are available immediately. */
  more: boolean
}

type FollowSource = {
  /** The last rows, when there is no cursor. */
  newest(lines: number): Promise<Batch>
  after(at: Positions): Promise<Batch>
}

type Followed = {
  kind: string
  columns: Column[]
  known: Column[]
  terminal?: TerminalRows
  source: FollowSource
  /** The shortest time to the next look; half a second unless they are costly. */
  everyMs?: () => number
}

export const followFlags: FlagSet = {
  follow: booleanFlag({ char: 'f', description: 'Follow new entries until Ctrl-C' }),
  lines: linesFlag,
  after: textFlag('Continue after this cursor', 'CURSOR', ['cursor-file']),
  'cursor-file': textFlag('Continue after the cursor in this file, and update it', 'FILE'),
}

/** Characters of a cursor that can still be copied, and that every shell takes. */
const longestArgument = 4096

const minPollMs = 500
const maxPollMs = 5000
const maxRetryMs = 30_000

/** Prints new rows and follows; each row once, over restarts of the service and of this command. */
export async function follow(
  run: CommandContext,
  flags: Record<string, unknown>,
  { kind, columns, known, terminal, source, everyMs = () => minPollMs }: Followed,
): Promise<void> {
  const print = linePrinter(run.output, columns, known, terminal)
  const file = flags['cursor-file'] as string | undefined
  if (file !== undefined) checkReplaceable(file)
  const following = flags.follow === true
  const text = file === undefined ? (flags.after as string | undefined) : readFileIfExists(file)?.trim()
  // An empty file has no cursor yet.
  const isNew = text === undefined || (text === '' && file !== undefined)
  let at = isNew ? undefined : parseCursor(text, kind)
  let isKept = file !== undefined && existsSync(file)
  const leave = () => {
    if (!at || isKept) return
    const cursor = formatCursor(at, kind)
    printNote(
      cursor.length > longestArgument
        ? 'To continue another time from where it ends, follow with --cursor-file FILE: the cursor of so many logs is too long for --after'
        : `To continue from here: --after ${cursor}`,
    )
  }
  const interrupted = onInterrupt(leave)
  try {
    for (let pause = 0; ; ) {
      const from = at
      const read = () =>
        from === undefined ? source.newest((flags.lines as number | undefined) ?? 10) : source.after(from)
      const batch = following && from !== undefined ? await retryUntilAvailable(read) : await read()
      await interrupted.while(async () => {
        await print(batch.rows)
        const moved = formatCursor(batch.at, kind)
        const isMoved = at === undefined || moved !== formatCursor(at, kind)
        at = batch.at
        if (file === undefined || !isMoved) return
        isKept = false
        writePrivateFile(file, `${moved}\n`)
        isKept = true
      })
      // The command does not end, so notes cannot wait for its end.
      if (following) flushNotes()
      if (batch.more) continue
      if (!following) break
      const min = everyMs()
      pause = batch.rows.length > 0 ? min : Math.max(min, Math.min(maxPollMs, (pause || min) * 1.5))
      await sleep(pause)
    }
  } finally {
    leave()
  }
}

/** The cursor of printed rows is stored before the command ends; a second Ctrl-C does not wait for that. */
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

/** Waits out a service that is restarted or overloaded; `tell` receives what is wrong, once, and that it has passed. */
export async function retryUntilAvailable<T>(
  work: () => Promise<T>,
  tell: (text: string) => void = printNote,
): Promise<T> {
  for (let pause = 1000, isReported = false; ; pause = Math.min(maxRetryMs, pause * 2)) {
    try {
      const result = await work()
      if (isReported) tell('The service answers again')
      return result
    } catch (error) {
      if (!isTransient(error)) throw error
      if (!isReported) tell(`${(error as Error).message}: trying again until it answers`)
      isReported = true
      const asked = error instanceof ApiError ? (error.retryAfter ?? 0) * 1000 : 0
      await sleep(Math.max(asked, pause))
    }
  }
}

/** Of a service that is away or busy for a moment. */
export const isTransient = (error: unknown): boolean =>
  error instanceof NetworkError ||
  error instanceof TimeoutError ||
  (error instanceof ApiError && [429, 502, 503, 504].includes(error.status))

const formatCursor = (at: Positions, kind: string): string =>
  Buffer.from(JSON.stringify({ [kind]: at })).toString('base64url')

function parseCursor(text: string, kind: string): Positions {
  const { [kind]: at } = (parseJson(Buffer.from(text, 'base64url')) ?? {}) as Record<string, Positions>
  if (at && Object.values(at).every((place) => Number.isSafeInteger(place) && place >= 0)) return at
  throw usageError(`This is not a cursor of svc ${kind} tail: ${text.slice(0, 60)}`)
}

/** Merges rows of several logs by `timeOf`, without changing the order within a log. */
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
