import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import type { Session } from './base.ts'
import type { Column } from './columns.ts'
import { exits, usage } from './exit.ts'
import { readIfThere, writePrivately } from './files.ts'
import { type FlagSet, linesFlag, wordFlag, yes } from './flags.ts'
import { linePrinter } from './lines.ts'
import { releaseNotes } from './notes.ts'
import { say } from './print.ts'

/** How far each of the logs that are followed was read. */
export type Places = Readonly<Record<string, number>>

export type Batch = {
  rows: unknown[]
  at: Places
  /** There is more at once. */
  more: boolean
}

export type Source = {
  /** The last rows there are, when nothing was read before. */
  newest(lines: number): Promise<Batch>
  behind(at: Places): Promise<Batch>
}

export const followFlags: FlagSet = {
  follow: yes({ char: 'f', description: 'Go on with what comes in, until Ctrl-C' }),
  lines: linesFlag,
  after: wordFlag('Go on where this cursor says, with all that came in since', 'CURSOR', ['cursor-file']),
  'cursor-file': wordFlag('Go on where this file says, and keep in it how far it went', 'FILE'),
}

const fastest = 500
const slowest = 5000
const longestPause = 30_000

/** Prints what is new, and what comes then; each row once, also over restarts of the service or of this command. */
export async function follow(
  run: Session,
  flags: Record<string, unknown>,
  { kind, columns, known, source }: { kind: string; columns: Column[]; known: Column[]; source: Source },
): Promise<void> {
  const print = linePrinter(run.output, columns, known)
  const file = flags['cursor-file'] as string | undefined
  const following = flags.follow === true
  const text = file === undefined ? (flags.after as string | undefined) : readIfThere(file)?.trim()
  // A file that is empty is one nothing was kept in yet.
  const isNew = text === undefined || (text === '' && file !== undefined)
  let at = isNew ? undefined : placesIn(text, kind)
  const leave = () => {
    if (at && (file === undefined || !existsSync(file)))
      say(`To go on from here: --after ${textOf(at, kind)}`)
  }
  const interrupted = onInterrupt(leave)
  try {
    for (let pause = fastest; ; ) {
      const from = at
      const read = () =>
        from === undefined ? source.newest((flags.lines as number | undefined) ?? 10) : source.behind(from)
      const batch = following && from !== undefined ? await persistently(read) : await read()
      await interrupted.while(async () => {
        await print(batch.rows)
        const moved = textOf(batch.at, kind)
        if (file !== undefined && (at === undefined || moved !== textOf(at, kind)))
          writePrivately(file, `${moved}\n`)
        at = batch.at
      })
      // Nobody waits for the end of this to be told of it.
      if (following) releaseNotes()
      if (batch.more) continue
      if (!following) break
      pause = batch.rows.length > 0 ? fastest : Math.min(slowest, pause * 1.5)
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
    process.exit(exits.interrupted)
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
export async function persistently<T>(work: () => Promise<T>): Promise<T> {
  for (let pause = 1000, told = false; ; pause = Math.min(longestPause, pause * 2)) {
    try {
      const result = await work()
      if (told) say('The service answers again')
      return result
    } catch (error) {
      if (!passes(error)) throw error
      if (!told) say(`${(error as Error).message}: trying again until it answers`)
      told = true
      const asked = error instanceof ApiError ? (error.retryAfter ?? 0) * 1000 : 0
      await sleep(Math.max(asked, pause))
    }
  }
}

const passes = (error: unknown): boolean =>
  error instanceof NetworkError ||
  error instanceof TimeoutError ||
  (error instanceof ApiError && [429, 502, 503, 504].includes(error.status))

const textOf = (at: Places, kind: string): string =>
  Buffer.from(JSON.stringify({ [kind]: at })).toString('base64url')

function placesIn(text: string, kind: string): Places {
  try {
    const { [kind]: at } = JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, Places>
    if (at && Object.values(at).every((place) => Number.isSafeInteger(place) && place >= 0)) return at
  } catch {
    // Said below.
  }
  throw usage(`This is no cursor of svc ${kind} tail: ${text.slice(0, 60)}`)
}

/** Rows of several logs as one: each in its own order, together as close to that of `timeOf` as it allows. */
export function merged<R>(logs: R[][], timeOf: (row: R) => string): R[] {
  const timed = logs.flatMap((rows) => {
    let latest = ''
    return rows.map((row) => {
      if (timeOf(row) > latest) latest = timeOf(row)
      return { row, latest }
    })
  })
  return timed.sort((a, b) => (a.latest < b.latest ? -1 : a.latest > b.latest ? 1 : 0)).map(({ row }) => row)
}
