import type { NewEventLog } from '../logs/events/contract.ts'
import { readJournal } from './journal.ts'
import { readLogFiles } from './log-files.ts'
import type { LogPosition } from './log-position.ts'

const day = 86_400_000

export type HostLogs = { events: NewEventLog[]; position: LogPosition }

type Places = { journal?: string; folder?: string; now?: Date }

/**
 * At most `max` entries that this machine logged since the position: from its journal, or from log files if it has
 * none.
 */
export async function readHostLogs(
  { cursor, files }: LogPosition,
  max: number,
  { journal = 'journalctl', folder = '/var/log', now = new Date() }: Places = {},
): Promise<HostLogs> {
  let read = await readJournal(cursor, max, journal)
  // The machine logs more than can be sent: recent entries are more useful than all of last week's.
  const last = read?.events.at(-1)
  if (cursor !== undefined && last && Date.parse(last.timestamp) < now.getTime() - day) {
    read = (await readJournal(undefined, max, journal)) ?? read
  }
  if (read) return { events: read.events, position: { cursor: read.cursor } }
  const { events, positions } = await readLogFiles(folder, files, max, now)
  return { events, position: { files: positions } }
}
