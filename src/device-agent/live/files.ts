import { type FileHandle, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { QueryLog } from '../../live/wire/contract.ts'
import { bestEffort } from '../best-effort.ts'
import { categoryOf, levelOf, parseTime } from '../log-files.ts'
import { sanitizeText } from '../sanitize-text.ts'
import {
  findLog,
  type LiveLogs,
  type LogEvent,
  LogNotFound,
  maxMessageLength,
  pageCollector,
} from './logs.ts'

/** Only this much of the end of a file is searched. */
const window = 8 * 1024 * 1024
const longestLine = 64 * 1024

type Line = { place: number; text: string }

/**
 * The log files of a folder, each of them a log. A record is identified by the position of its line: it is stable
 * while the file exists.
 */
export const fileLogs = (folder = '/var/log'): LiveLogs => ({
  async list() {
    const logs = await Promise.all(
      (await namesIn(folder)).map(async (name) => {
        const stats = await bestEffort(() => stat(join(folder, name)))
        return stats?.isFile() ? [{ name, displayName: name, lastWriteTime: stats.mtime.toISOString() }] : []
      }),
    )
    return { logs: logs.flat() }
  },

  query: (query, signal) =>
    inFile(folder, query.logName, async (file, name) => {
      const { size, mtime } = await file.stat()
      const from = Math.max(0, size - window)
      const bytes = Buffer.alloc(size - from)
      const { bytesRead } = await file.read(bytes, 0, bytes.length, from)
      signal.throwIfAborted()
      const page = pageCollector(query)
      for (const line of linesBackwards(bytes.subarray(0, bytesRead), from)) {
        if (page.isFull()) break
        if (matches(query, name, line, mtime)) page.offer(() => eventOf(name, line, mtime))
      }
      return page.done()
    }),

  get: (logName, recordId) =>
    inFile(folder, logName, async (file, name) => {
      const { mtime, size } = await file.stat()
      if (recordId < 1 || recordId > size) throw new LogNotFound('record_not_found')
      const bytes = Buffer.alloc(longestLine)
      // Includes the end of the line before: otherwise the position is not the start of a line.
      const from = Math.max(0, recordId - 2)
      const { bytesRead } = await file.read(bytes, 0, longestLine, from)
      const start = recordId - 1 - from
      if (start === 1 && bytes[0] !== 10) throw new LogNotFound('record_not_found')
      const end = bytes.subarray(0, bytesRead).indexOf(10, start)
      const text = bytes
        .subarray(start, end < 0 ? bytesRead : end)
        .toString('utf8')
        .trim()
      if (text === '') throw new LogNotFound('record_not_found')
      return eventOf(name, { place: recordId, text }, mtime)
    }),
})

async function namesIn(folder: string): Promise<string[]> {
  const names = (await bestEffort(() => readdir(folder))) ?? []
  return names.filter((name) => /\.log$|^(syslog|messages)$/.test(name)).sort()
}

/** Opens a file only by a name found in the folder, never by the requested name. */
async function inFile<T>(
  folder: string,
  logName: string,
  read: (file: FileHandle, name: string) => Promise<T>,
): Promise<T> {
  const { name } = findLog(
    (await namesIn(folder)).map((one) => ({ name: one })),
    logName,
  )
  const file = await open(join(folder, name))
  try {
    if (!(await file.stat()).isFile()) throw new LogNotFound('log_not_found')
    return await read(file, name)
  } finally {
    await file.close()
  }
}

/** Newest first; stops at an incomplete first line, when the window does not start at the beginning of the file. */
function* linesBackwards(bytes: Buffer, from: number): Generator<Line> {
  let end = bytes.length
  while (end > 0) {
    const start = bytes.lastIndexOf(10, end - 1 - (bytes[end - 1] === 10 ? 1 : 0)) + 1
    if (start === 0 && from > 0) return
    const text = bytes
      .subarray(start, Math.min(end, start + longestLine))
      .toString('utf8')
      .trim()
    if (text !== '') yield { place: from + start + 1, text }
    end = start
  }
}

function matches(
  { level, source, eventId, startTime, endTime }: QueryLog,
  name: string,
  { text }: Line,
  written: Date,
): boolean {
  if (eventId !== 0 || (source !== '' && source !== name)) return false
  if (level !== '' && level.toLowerCase() !== liveLevelOf(text)) return false
  if (startTime === '' && endTime === '') return true
  const at = (parseTime(text) ?? written).getTime()
  return (startTime === '' || at >= Date.parse(startTime)) && (endTime === '' || at < Date.parse(endTime))
}

const eventOf = (name: string, { place, text }: Line, written: Date): LogEvent => ({
  recordId: place,
  timeCreated: (parseTime(text) ?? written).toISOString(),
  level: liveLevelOf(text),
  source: name,
  eventId: 0,
  message: sanitizeText(text, maxMessageLength),
  category: categoryOf(name),
})

function liveLevelOf(text: string): string {
  const level = levelOf(text)
  if (level !== 'info') return level
  return /\b(debug|trace)\b/i.test(text) ? 'verbose' : 'information'
}
