import { hash } from 'node:crypto'
import { type FileHandle, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { NewEventLog } from '../logs/events/contract.ts'
import { bestEffort } from './best-effort.ts'
import { sanitizeText } from './sanitize-text.ts'

/** How far each file was read. The inode detects a replaced file. */
export type FilePositions = Record<string, { inode: number; offset: number }>

const piece = 64 * 1024
/** Most unread bytes of a file that are still read. */
const backlog = 1024 * 1024

/**
 * At most `max` new lines of the `*.log` files in a folder. The first call returns none: older lines are not
 * reported.
 */
export async function readLogFiles(
  folder: string,
  before: FilePositions | undefined,
  max: number,
  now: Date,
): Promise<{ events: NewEventLog[]; positions: FilePositions }> {
  const names = ((await bestEffort(() => readdir(folder))) ?? [])
    .filter((name) => name.endsWith('.log'))
    .sort()
  const events: NewEventLog[] = []
  const positions: FilePositions = {}
  for (const name of names) {
    const previous = before?.[name]
    const read = await bestEffort(async () => {
      const file = await open(join(folder, name))
      try {
        return await tail(file, name, before === undefined ? 'end' : previous, max - events.length, now)
      } finally {
        await file.close()
      }
    })
    const position = read?.position ?? previous
    if (position) positions[name] = position
    events.push(...(read?.events ?? []))
  }
  return { events, positions }
}

async function tail(
  file: FileHandle,
  name: string,
  from: FilePositions[string] | 'end' | undefined,
  max: number,
  now: Date,
) {
  const stats = await file.stat()
  if (!stats.isFile()) return undefined
  const { ino: inode, size } = stats
  if (from === 'end') return { events: [], position: { inode, offset: size } }
  const same = from !== undefined && from.inode === inode && from.offset <= size
  let offset = Math.max(same ? from.offset : 0, size - backlog)
  const events: NewEventLog[] = []
  const buffer = Buffer.alloc(piece)
  while (events.length < max) {
    const { bytesRead } = await file.read(buffer, 0, piece, offset)
    const end = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1
    // An incomplete line is read when it is complete, unless it is longer than a piece.
    if (end === 0 && bytesRead < piece) break
    if (end === 0) offset += bytesRead
    let start = 0
    while (start < end && events.length < max) {
      const stop = buffer.indexOf('\n', start)
      const line = buffer.subarray(start, stop).toString('utf8').trim()
      if (line !== '') events.push(eventOf(name, line, `${inode}/${offset + start}`, now))
      start = stop + 1
    }
    offset += start
  }
  return { events, position: { inode, offset } }
}

function eventOf(file: string, line: string, place: string, now: Date): NewEventLog {
  return {
    timestamp: (parseTime(line) ?? now).toISOString(),
    level: levelOf(line),
    category: categoryOf(file),
    source: sanitizeText(file, 255),
    eventId: hash('sha256', `${place} ${line}`, 'hex'),
    message: sanitizeText(line, 2000),
  }
}

/** The time at the start of the line, if any; in the machine's time zone unless the line has another. */
export function parseTime(line: string): Date | undefined {
  const [said] = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?/.exec(line) ?? []
  const time = said === undefined ? Number.NaN : Date.parse(said)
  return Number.isNaN(time) ? undefined : new Date(time)
}

export function levelOf(line: string): NewEventLog['level'] {
  if (/\b(panic|emerg|crit|critical|fatal)\b/i.test(line)) return 'critical'
  if (/\b(err|error|fail|failed|failure)\b/i.test(line)) return 'error'
  return /\bwarn(ing)?\b/i.test(line) ? 'warning' : 'info'
}

export function categoryOf(file: string): NewEventLog['category'] {
  if (/auth|secure|audit|sudo/.test(file)) return 'security'
  if (/kern|dmesg/.test(file)) return 'hardware'
  return /syslog|system|messages|daemon|cron|boot|dpkg|apt/.test(file) ? 'system' : 'application'
}
