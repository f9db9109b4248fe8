import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { isJsonObject, parseJson, withoutUndefined } from '../core/json.ts'
import type { NewEventLog } from '../logs/events/contract.ts'
import { sanitizeText } from './sanitize-text.ts'

export type JournalPage = { events: NewEventLog[]; cursor: string | undefined }

/** A journal record: a value is text, or a list of bytes if it is not UTF-8. */
export type JournalRecord = Record<string, unknown>

/**
 * At most `max` records after the cursor, oldest first; without a cursor the latest ones. undefined when this
 * machine has no journal, or we may not read it.
 */
export async function readJournal(
  cursor: string | undefined,
  max: number,
  command = 'journalctl',
): Promise<JournalPage | undefined> {
  // Priority notice and above: lower ones are too many to be useful.
  const args = ['--output=json', '--no-pager', '--quiet', '--priority=notice']
  const latest = () => readLines(command, [...args, `--lines=${max}`], max)
  // A cursor that the journal no longer knows must not stop the collection.
  const lines =
    cursor === undefined
      ? await latest()
      : ((await readLines(command, [...args, `--after-cursor=${cursor}`], max)) ?? (await latest()))
  if (lines === undefined || (lines.length === 0 && cursor === undefined)) return undefined
  const records = lines.flatMap(parseRecord)
  const events = records.flatMap((record) => eventOf(record) ?? [])
  return { events, cursor: records.map(cursorOf).findLast((one) => one !== undefined) ?? cursor }
}

/** The first lines of a program's output; undefined when it cannot be run, or fails without output. */
export function readLines(command: string, args: string[], max: number): Promise<string[] | undefined> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], timeout: 10_000 })
    let printed = ''
    let count = 0
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      if (count >= max) return
      printed += chunk
      count += chunk.split('\n').length - 1
      if (count >= max) child.kill()
    })
    child.once('error', () => resolve(undefined))
    child.once('close', (code) => {
      const lines = printed.split('\n').slice(0, -1).slice(0, max)
      resolve(code === 0 || lines.length > 0 ? lines : undefined)
    })
  })
}

export function parseRecord(line: string): JournalRecord[] {
  // The limit of the output may have cut it off.
  const record = parseJson(line)
  return isJsonObject(record) ? [record as JournalRecord] : []
}

const cursorOf = ({ __CURSOR }: JournalRecord): string | undefined =>
  typeof __CURSOR === 'string' ? __CURSOR : undefined

function eventOf(record: JournalRecord): NewEventLog | undefined {
  const cursor = cursorOf(record)
  const microseconds = Number(record.__REALTIME_TIMESTAMP)
  const message = fieldText(record.MESSAGE)
  if (cursor === undefined || message === undefined || !(microseconds > 0 && microseconds < 4e15)) {
    return undefined
  }
  const source = fieldText(record.SYSLOG_IDENTIFIER) || fieldText(record._COMM) || 'journal'
  return {
    timestamp: new Date(microseconds / 1000).toISOString(),
    level: levelOf(Number(record.PRIORITY ?? 6)),
    category: categoryOf(record),
    source: sanitizeText(source, 255),
    // Identifies this record: the service ignores duplicates.
    eventId: hash('sha256', cursor, 'hex'),
    message: sanitizeText(message, 2000),
    details: withoutUndefined({
      unit: shortOf(record._SYSTEMD_UNIT),
      pid: shortOf(record._PID),
      messageId: shortOf(record.MESSAGE_ID),
    }),
  }
}

const shortOf = (value: unknown): string | undefined => {
  const text = fieldText(value)
  return text === undefined ? undefined : sanitizeText(text, 255)
}

export function fieldText(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  const isBytes = Array.isArray(value) && value.every((byte) => typeof byte === 'number')
  return isBytes ? Buffer.from(value).toString('utf8') : undefined
}

/** Syslog severities: 0 is emergency, 7 is debug. */
function levelOf(priority: number): NewEventLog['level'] {
  if (priority <= 2) return 'critical'
  return priority === 3 ? 'error' : priority === 4 ? 'warning' : 'info'
}

/** Syslog facilities: 0 kernel, 4 and 10 authorization, 13 audit, 1 and 16 to 23 for programs. */
export function categoryOf({ SYSLOG_FACILITY, _TRANSPORT }: JournalRecord): NewEventLog['category'] {
  const facility = Number(SYSLOG_FACILITY ?? Number.NaN)
  if (_TRANSPORT === 'audit' || [4, 10, 13].includes(facility)) return 'security'
  if (_TRANSPORT === 'kernel' || facility === 0) return 'hardware'
  return facility === 1 || (facility >= 16 && facility <= 23) ? 'application' : 'system'
}
