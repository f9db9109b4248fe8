import { fileLogs } from './files.ts'
import { hasJournal, journalLogs } from './journal.ts'
import type { LiveLogs } from './logs.ts'

/** The journal, or log files if there is none; checked again for each query. */
export function hostLiveLogs({ journal = 'journalctl', folder = '/var/log' } = {}): LiveLogs {
  const fromJournal = journalLogs(journal)
  const fromFiles = fileLogs(folder)
  const chosen = async (): Promise<LiveLogs> => ((await hasJournal(journal)) ? fromJournal : fromFiles)
  return {
    list: async (signal) => (await chosen()).list(signal),
    query: async (query, signal) => (await chosen()).query(query, signal),
    get: async (logName, recordId, signal) => (await chosen()).get(logName, recordId, signal),
  }
}
