import { describe, expect, it } from 'vitest'
import { readArchive } from '../../../daemon/backup/read-archive.ts'
import { recordAudit, sealPending } from '../../../src/audit/outbox.ts'
import { toDraftEntry } from '../../../src/audit/rules.ts'
import { newId } from '../../../src/core/new-id.ts'
import { systemClock } from '../../../src/core/time.ts'
import type { Cell } from '../../../src/storage/backup/row-pages.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { happening } from '../../audit/rows.ts'
import { openMigrated } from '../../databases.ts'
import { schemaOf } from '../../laws/schema.ts'
import { backupOf, emptyPlace, kinds, restored } from './filled.ts'

/** Parents and children in one transaction, tables that are read early and late, and an entry of a chain. */
async function addFamily(storage: Storage, n: number): Promise<void> {
  const now = systemClock()
  const stamped = { created_at: now, updated_at: now }
  const [partner_id, org_id] = [newId(), newId()]
  const common = { type: 'customer', status: 'active', settings: '{}', max_devices: null, sso_config: null }
  await storage.write(async (tx) => {
    const partner = {
      ...common,
      id: partner_id,
      name: `p${n}`,
      slug: `p${n}`,
      plan: 'a',
      max_organizations: null,
    }
    await tx
      .insertInto('partners')
      .values({ ...partner, billing_email: null, deleted_at: null, ...stamped })
      .execute()
    const org = { ...common, id: org_id, partner_id, name: `o${n}`, slug: `o${n}`, contract_start: null }
    await tx
      .insertInto('organizations')
      .values({ ...org, contract_end: null, billing_contact: null, deleted_at: null, ...stamped })
      .execute()
    const alert = {
      id: newId(),
      org_id,
      device_id: null,
      rule_id: null,
      status: 'open',
      severity: 'low',
      title: 'a',
    }
    await tx
      .insertInto('alerts')
      .values({ ...alert, title_key: 'a', triggered_at: now, ...stamped } as never)
      .execute()
    const hook = {
      id: newId(),
      org_id,
      name: 'w',
      url: 'x',
      headers: 'x',
      status: 'active',
      created_by: newId(),
    }
    await tx
      .insertInto('webhooks')
      .values({ ...hook, ...stamped } as never)
      .execute()
    await recordAudit(tx, toDraftEntry(happening(null, { resourceName: `family ${n}` }), now))
  })
  if (n % 10 === 0) await sealPending(storage)
}

type Table = Record<string, Cell>[]

async function tablesOf(file: string): Promise<Map<string, Table>> {
  const tables = new Map<string, Table>()
  let columns: readonly string[] = []
  let own: Table = []
  await readArchive(
    { file, identityFile: undefined },
    {
      head() {},
      file() {},
      table(name, its) {
        columns = its
        own = []
        tables.set(name, own)
      },
      rows(rows) {
        for (const row of rows) own.push(Object.fromEntries(columns.map((column, at) => [column, row[at]!])))
      },
      endTable() {},
    },
  )
  return tables
}

describe.each(kinds)('a backup of %s that others write to', (kind) => {
  it('is of one moment', async () => {
    const { storage, dataDir, databaseUrl } = await openMigrated(kind)
    for (let n = 0; n < 1500; n++) await addFamily(storage, n)
    let made = 1500
    let isDone = false
    const writing = (async () => {
      for (; !isDone && made < 20_000; made++) {
        await addFamily(storage, made)
        // Lets the backup read in between.
        await new Promise(setImmediate)
      }
    })()
    const place = { dataDir, databaseUrl }
    const atFirst = made
    const { file } = await backupOf(place)
    isDone = true
    await writing
    const tables = await tablesOf(file)
    const families = tables.get('partners')!.length
    expect(made - atFirst, 'families made beside it').toBeGreaterThan(5)
    expect(families).toBeLessThan(made)

    for (const name of ['organizations', 'alerts', 'webhooks']) {
      expect([name, tables.get(name)!.length]).toEqual([name, families])
    }
    for (const [name, { foreignKeys }] of Object.entries(await schemaOf(storage))) {
      for (const [, column, parent, key] of foreignKeys.map((it) => /^(\w+) -> (\w+)\((\w+)\)/.exec(it)!)) {
        const known = new Set(tables.get(parent!)?.map((row) => row[key!]))
        const orphans = (tables.get(name) ?? []).filter(
          (row) => row[column!] !== null && !known.has(row[column!]!),
        )
        expect([name, column, orphans]).toEqual([name, column, []])
      }
    }
    const entries = tables.get('audit_logs')!.length + tables.get('outbox')!.length
    expect(entries).toBe(families)
    const last = tables.get('audit_logs')!.at(-1)!
    expect(tables.get('audit_heads')).toEqual([{ chain: 'system', seq: last.seq, checksum: last.checksum }])
    await restored(await emptyPlace(kind === 'sqlite' ? 'postgres' : 'sqlite'), file)
  })
})
