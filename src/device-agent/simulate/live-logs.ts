import type { Enrollment } from '../../agents/contract.ts'
import type { QueryLog } from '../../live/wire/contract.ts'
import { type EventPage, findLog, type LiveLogs, LogNotFound, pageCollector } from '../live/logs.ts'
import { oneOf, seededRandom } from './seeded-random.ts'

type LogEntry = EventPage['events'][number]

/** Number of entries of each log. */
const entriesPerLog = 500
const minuteMs = 60_000

const logsOn: Record<Enrollment['osType'], { name: string; sources: string[] }[]> = {
  windows: [
    { name: 'System', sources: ['Service Control Manager', 'Disk', 'EventLog'] },
    { name: 'Application', sources: ['MsiInstaller', 'Application Error'] },
  ],
  linux: [{ name: 'system', sources: ['systemd', 'kernel', 'sshd', 'cron'] }],
  macos: [{ name: 'system', sources: ['launchd', 'kernel', 'WindowServer'] }],
}
const levels = ['information', 'information', 'information', 'warning', 'error']
const texts = ['started', 'stopped', 'reloaded its configuration', 'took longer than usual', 'failed']

/** Plausible logs of a simulated machine: an entry per minute, up to now. */
export function simulatedLogs(
  seed: number,
  n: number,
  osType: Enrollment['osType'],
  now: () => number,
): LiveLogs {
  const entryAt = (log: { name: string; sources: string[] }, recordId: number): LogEntry => {
    const source = oneOf(log.sources, seededRandom(seed, n + recordId, 'source'))
    const eventId = Math.floor(5 * seededRandom(seed, n + recordId, 'event'))
    const newest = Math.floor(now() / minuteMs) * minuteMs
    return {
      recordId,
      source,
      level: levels[eventId]!,
      eventId: 1000 + eventId,
      computer: `sim-${n}`,
      timeCreated: new Date(newest - (entriesPerLog - recordId) * minuteMs).toISOString(),
      message: `${source} ${texts[eventId]}`,
    }
  }
  return {
    list: async () => ({
      logs: logsOn[osType].map(({ name }) => ({ name, displayName: name, recordCount: entriesPerLog })),
    }),
    async query(query) {
      const log = findLog(logsOn[osType], query.logName)
      const page = pageCollector(query)
      for (let id = entriesPerLog; id > 0; id--) {
        const entry = entryAt(log, id)
        if (fits(entry, query)) page.offer(() => entry)
      }
      return page.done()
    },
    async get(logName, recordId) {
      const log = findLog(logsOn[osType], logName)
      if (recordId < 1 || recordId > entriesPerLog) throw new LogNotFound('record_not_found')
      return entryAt(log, recordId)
    },
  }
}

const fits = (entry: LogEntry, { level, source, eventId, startTime, endTime }: QueryLog): boolean =>
  (level === '' || entry.level === level) &&
  (source === '' || entry.source === source) &&
  (eventId === 0 || entry.eventId === eventId) &&
  (startTime === '' || Date.parse(entry.timeCreated) >= Date.parse(startTime)) &&
  (endTime === '' || Date.parse(entry.timeCreated) <= Date.parse(endTime))
