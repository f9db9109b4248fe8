import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { QueryLog } from '../../live/wire/contract.ts'
import { categoryOf, fieldText, type JournalRecord, parseRecord, readLines } from '../journal.ts'
import { sanitizeText } from '../sanitize-text.ts'
import {
  findLog,
  type LiveLogs,
  type LogEvent,
  LogNotFound,
  maxCounted,
  maxMessageLength,
  pageCollector,
} from './logs.ts'

type JournalLog = { name: string; displayName: string; matches: string[] }

/** Well-known names; each unit is a separate log as well. */
const known: readonly JournalLog[] = [
  { name: 'System', displayName: 'The whole journal', matches: [] },
  { name: 'Kernel', displayName: 'Messages of the kernel', matches: ['_TRANSPORT=kernel'] },
  {
    name: 'Auth',
    displayName: 'Sign-ins and authorization',
    // Syslog facilities auth and authpriv.
    matches: ['SYSLOG_FACILITY=4', 'SYSLOG_FACILITY=10'],
  },
]
const maxUnits = 500
const fields = 'MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_COMM,SYSLOG_FACILITY,_TRANSPORT,MESSAGE_ID,_UID,_HOSTNAME'
const common = ['--output=json', `--output-fields=${fields}`, '--no-pager', '--quiet']

/**
 * The journal. A record is identified by its time in microseconds, by which journalctl finds it even after a
 * rotation.
 */
export const journalLogs = (command = 'journalctl'): LiveLogs => ({
  async list() {
    const [header, units] = await Promise.all([headerOf(command), unitsOf(command)])
    return {
      logs: [...known, ...units].map(({ name, displayName }) => ({
        name,
        displayName,
        ...(name === 'System' && header),
      })),
    }
  },

  async query(query, signal) {
    const { matches } = await logNamed(command, query.logName)
    const page = pageCollector(query)
    const { timeoutSeconds, eventId } = query
    const args = [...common, '--reverse', `--lines=${maxCounted}`, ...narrowing(query), ...matches]
    const limits = { signal, timeout: timeoutSeconds * 800 }
    await eachLine(command, args, limits, (line) => {
      if (eventId === 0) page.offer(() => eventIn(line))
      else if (eventIn(line).eventId === eventId) page.offer(() => eventIn(line))
      return !page.isFull()
    })
    return page.done()
  },

  async get(logName, recordId, signal) {
    const { matches } = await logNamed(command, logName)
    const at = moment(recordId)
    let found: LogEvent | undefined
    const args = [...common, `--since=${at}`, `--until=${at}`, ...matches]
    await eachLine(command, args, { signal, timeout: 20_000 }, (line) => {
      found = eventIn(line)
      return false
    })
    if (!found) throw new LogNotFound('record_not_found')
    return found
  },
})

/** Whether this machine has a journal that we may read. */
export const hasJournal = async (command = 'journalctl'): Promise<boolean> =>
  ((await readLines(command, [...common, '--lines=1'], 1)) ?? []).length > 0

async function logNamed(command: string, name: string): Promise<JournalLog> {
  try {
    return findLog(known, name)
  } catch (error) {
    if (!(error instanceof LogNotFound)) throw error
    return findLog(await unitsOf(command), name)
  }
}

async function unitsOf(command: string): Promise<JournalLog[]> {
  const units = (await readLines(command, ['--field=_SYSTEMD_UNIT', '--no-pager'], maxUnits)) ?? []
  return units.sort().map((name) => ({ name, displayName: name, matches: [`_SYSTEMD_UNIT=${name}`] }))
}

/** Facts from the journal's file headers, without reading the entries. */
async function headerOf(command: string) {
  const lines = (await readLines(command, ['--header', '--no-pager'], 10_000)) ?? []
  const numbers = (pattern: RegExp, base: number): number[] =>
    lines.flatMap((line) => {
      const [, number] = pattern.exec(line) ?? []
      return number === undefined ? [] : [Number.parseInt(number, base)]
    })
  const counts = numbers(/^Entry objects: (\d+)/i, 10)
  const tails = numbers(/^Tail realtime timestamp: .*\(([0-9a-f]+)\)/i, 16)
  return {
    ...(counts.length > 0 && { recordCount: counts.reduce((sum, one) => sum + one, 0) }),
    ...(tails.length > 0 && { lastWriteTime: new Date(Math.max(...tails) / 1000).toISOString() }),
  }
}

const priorities: Readonly<Record<string, string>> = {
  critical: '0..2',
  error: '3..3',
  warning: '4..4',
  information: '5..6',
  verbose: '7..7',
}

function narrowing({ level, source, startTime, endTime }: QueryLog): string[] {
  const priority = priorities[level.toLowerCase()]
  return [
    ...(priority === undefined ? [] : [`--priority=${priority}`]),
    ...(startTime === '' ? [] : [`--since=${moment(Date.parse(startTime) * 1000)}`]),
    // --until of journalctl is inclusive; endTime is exclusive.
    ...(endTime === '' ? [] : [`--until=${moment(Date.parse(endTime) * 1000 - 1)}`]),
    ...(source === '' ? [] : [`SYSLOG_IDENTIFIER=${source}`]),
  ]
}

/** Microseconds since 1970 in the format of systemd.time(7). */
const moment = (microseconds: number): string =>
  `@${Math.floor(microseconds / 1e6)}.${String(microseconds % 1e6).padStart(6, '0')}`

function eventIn(line: string): LogEvent {
  const record: JournalRecord = parseRecord(line)[0] ?? {}
  const microseconds = Number(record.__REALTIME_TIMESTAMP)
  if (!(microseconds > 0 && microseconds < 4e15)) throw new Error('the journal gave a record without a time')
  const { _HOSTNAME, _UID, MESSAGE_ID } = record
  return {
    recordId: microseconds,
    timeCreated: new Date(microseconds / 1000).toISOString(),
    level: levelOf(Number(record.PRIORITY ?? 6)),
    source: sanitizeText(fieldText(record.SYSLOG_IDENTIFIER) || fieldText(record._COMM) || 'journal', 255),
    eventId: eventIdOf(fieldText(MESSAGE_ID)),
    message: sanitizeText(fieldText(record.MESSAGE) ?? '', maxMessageLength),
    category: categoryOf(record),
    ...(fieldText(_UID) !== undefined && { userId: fieldText(_UID)! }),
    ...(fieldText(_HOSTNAME) !== undefined && { computer: fieldText(_HOSTNAME)! }),
  }
}

/** A journal message id has 128 bits: the first 32 distinguish them well enough. */
const eventIdOf = (messageId: string | undefined): number =>
  /^[0-9a-f]{32}$/i.test(messageId ?? '') ? Number.parseInt(messageId!.slice(0, 8), 16) : 0

function levelOf(priority: number): string {
  if (priority <= 2) return 'critical'
  if (priority === 7) return 'verbose'
  return priority === 3 ? 'error' : priority === 4 ? 'warning' : 'information'
}

/** Passes lines to `take` until it returns false. @throws when the program fails or takes too long */
function eachLine(
  command: string,
  args: string[],
  limits: { signal: AbortSignal; timeout: number },
  take: (line: string) => boolean,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], ...limits })
    let enough = false
    child.once('error', reject)
    const lines = createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY })
    lines.on('line', (line) => {
      if (enough || line === '') return
      try {
        enough = !take(line)
      } catch (error) {
        enough = true
        reject(error)
      }
      if (enough) child.kill()
    })
    lines.once('close', () => {
      if (enough) resolve()
    })
    child.once('close', (code, signal) => {
      if (enough || code === 0) resolve()
      // journalctl exits with 1, without a message, when nothing matches.
      else if (code === 1) resolve()
      else reject(new Error(signal ? 'the journal took too long' : `journalctl failed with ${code}`))
    })
  })
}
