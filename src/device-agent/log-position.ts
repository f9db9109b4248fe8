import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { safeParse } from '../core/schema.ts'
import { readJson } from './durable.ts'

/** How far the logs of this machine were sent. */
const LogPosition = z.object({
  /** Position in the journal. */
  cursor: z.string().optional(),
  files: z.record(z.string(), z.object({ inode: z.number(), offset: z.number() })).optional(),
})
export type LogPosition = z.output<typeof LogPosition>

export type LogPositionStore = { load(): LogPosition; save(position: LogPosition): void }

/** Losing the position is harmless: the service ignores duplicate entries. */
export function logPositionStore(stateDir: string): LogPositionStore {
  const file = join(stateDir, 'logs.json')
  return {
    load() {
      // There is none before the first run; a damaged one is as good as none.
      return safeParse(LogPosition, readJson(file)).data ?? {}
    },
    save(position) {
      writeFileSync(`${file}.new`, `${JSON.stringify(position)}\n`, { mode: 0o600 })
      renameSync(`${file}.new`, file)
    },
  }
}
