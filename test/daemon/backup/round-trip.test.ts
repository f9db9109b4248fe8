import { beforeAll, describe, expect, it } from 'vitest'
import type { BackupSummary } from '../../../daemon/backup/backup.ts'
import { isKept } from '../../../daemon/backup/contents.ts'
import { counterGap } from '../../../daemon/backup/end-pending-work.ts'
import type { Head, Tail } from '../../../daemon/backup/format.ts'
import { readArchive } from '../../../daemon/backup/read-archive.ts'
import { migrations } from '../../../migrations/index.ts'
import { addSeconds } from '../../../src/core/time.ts'
import { pendingMigrations } from '../../../src/storage/migrate.ts'
import { type Rows, rowsOf } from '../../table-dump.ts'
import { backupOf, emptyPlace, type Filled, filledPlace, kinds, restored, withStorage } from './filled.ts'

/** Columns that a restore changes, and tables that it adds rows to. */
const settledColumns: Record<string, readonly string[]> = {
  agent_builds: ['promoted_at', 'rollback_at'],
  webhooks: ['status', 'status_reason', 'updated_at'],
  webhook_deliveries: ['status', 'due_at', 'ended_at', 'error_message'],
  webhook_queues: ['due_at', 'holder', 'last_seq'],
  users: ['auth_epoch', 'mfa_epoch', 'totp_step'],
  trust_policies: ['version'],
  agent_keys: ['proved_at'],
  agent_commands: ['status', 'completed_at', 'result'],
  devices: ['command_bytes'],
  agent_rollouts: ['is_current', 'status', 'halt_reason', 'updated_at', 'claimed_by', 'claimed_until'],
  audit_retention: ['lease', 'leased_until'],
}
/** Columns with numbers that somebody may know from the lost time, with the key of their rows. */
const numbered = [
  ['users', 'id', 'auth_epoch'],
  ['users', 'id', 'mfa_epoch'],
  ['trust_policies', 'id', 'version'],
  ['webhook_queues', 'webhook_id', 'last_seq'],
] as const
const grown = [
  'audit_logs',
  'audit_heads',
  'outbox',
  // The restore is stated and signed.
  'audit_restores',
  'audit_checkpoints',
  'audit_tiles',
  'audit_keys',
]

/** The rows that have to be equal, as sorted texts. */
function comparable(rows: Rows): Map<string, string[]> {
  const kept = [...rows].filter(([table]) => isKept(table) && !grown.includes(table))
  return new Map(
    kept.map(([table, all]) => {
      const settled = settledColumns[table] ?? []
      const texts = all.map((row) => {
        const columns = Object.entries(row).filter(([column]) => !settled.includes(column))
        return JSON.stringify(columns.sort(([a], [b]) => (a < b ? -1 : 1)))
      })
      return [table, texts.sort()]
    }),
  )
}

async function read(file: string): Promise<Tail & { head: Head }> {
  let head: Head | undefined
  const visitor = {
    head(it: Head) {
      head = it
    },
    file() {},
    table() {},
    rows() {},
    endTable() {},
  }
  const tail = await readArchive({ file, identityFile: undefined }, visitor)
  return { ...tail, head: head! }
}

describe.each(kinds)('a backup of %s', (from) => {
  let filled: Filled
  let before: Rows
  let backup: BackupSummary
  beforeAll(async () => {
    filled = await filledPlace(from)
    before = await withStorage(filled, rowsOf)
    backup = await backupOf(filled)
  })

  it.each(kinds)('restored to %s has the same rows in every table', async (to) => {
    expect([...before].filter(([, rows]) => rows.length === 0).map(([table]) => table)).toEqual([])
    const place = await emptyPlace(to)
    const summary = await restored(place, backup.file)
    const after = await withStorage(place, rowsOf)
    expect(comparable(after)).toEqual(comparable(before))
    expect(await withStorage(place, (storage) => pendingMigrations(storage, migrations))).toEqual([])
    const known = new Set(after.get('audit_logs')!.map((row) => JSON.stringify(row)))
    const lost = before.get('audit_logs')!.filter((row) => !known.has(JSON.stringify(row)))
    expect(lost.map(({ canonical }) => canonical)).toEqual([])
    expect(after.get('outbox')).toEqual([])
    const min = counterGap(backup.madeAt, backup.madeAt)
    const behind = numbered.filter(([table, key, column]) => {
      const moved = new Map(after.get(table)!.map((row) => [row[key], Number(row[column])]))
      return !before.get(table)!.every((row) => moved.get(row[key])! >= Number(row[column]) + min)
    })
    expect(behind).toEqual([])
    const left = [...after].filter(([table, rows]) => !isKept(table) && rows.length > 0)
    expect(left.map(([table]) => table)).toEqual(['probes'])
    expect(summary).toMatchObject({
      webhooksPaused: 4,
      commandsEnded: 1,
      rolloutsHalted: 1,
      promotionsEnded: 1,
      source: from,
    })

    // Digests do not depend on the database: those of tables that a restore leaves alone are the same.
    const again = await backupOf(place)
    const [first, second] = [await read(backup.file), await read(again.file)]
    const { outbox: _, ...counters } = first.head.counters
    expect(Object.keys(counters)).toEqual(['events', 'set_aside'])
    const { madeAt } = first.head
    for (const [name, last] of Object.entries(counters)) {
      expect(second.head.counters[name]).toBeGreaterThanOrEqual(last + counterGap(madeAt, madeAt))
    }
    // A second restore of the same backup begins beyond the numbers of the first.
    expect(counterGap(madeAt, addSeconds(madeAt, 60))).toBe(counterGap(madeAt, madeAt) + 60)
    expect(second.head.counters.outbox).toBeGreaterThanOrEqual(first.head.counters.outbox!)
    expect(second.head.keys).toEqual(first.head.keys)
    const alone = Object.keys(first.tables).filter(
      (table) => !(table in settledColumns || grown.includes(table)),
    )
    expect(alone.length).toBeGreaterThan(40)
    for (const table of alone) expect([table, second.tables[table]]).toEqual([table, first.tables[table]])
    const { 'checkpoints/system': signed, ...files } = second.files
    expect({ ...files, 'checkpoints/system': first.files['checkpoints/system'] }).toEqual(first.files)
    expect(signed).not.toEqual(first.files['checkpoints/system'])
  })
})
