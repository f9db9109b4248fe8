import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import type { Dialect } from '../../src/storage/db.ts'
import type { Storage } from '../../src/storage/open.ts'
import { onEveryDatabase, openMigrated } from '../databases.ts'
import { productSources } from './imports.ts'
import { allowed, rawSqlIn } from './raw-sql.ts'
import { schemaOf, uncollated } from './schema.ts'
import { parting, sessionOn } from './session.ts'
import { deep } from './wrong-values.ts'

describe('the two databases', { timeout: 600_000 }, () => {
  it('give the same bytes for the same session', async () => {
    const on = (kind: Dialect) => sessionOn(() => openMigrated(kind))
    const [sqlite, postgres] = await Promise.all([on('sqlite'), on('postgres')])
    expect(sqlite.length).toBeGreaterThan(100)
    expect(sqlite.filter(({ status }) => status >= 500)).toEqual([])
    expect(parting(sqlite, postgres)).toEqual([])
  })

  it('have the same tables, columns, keys and indexes', async () => {
    const [sqlite, postgres] = await Promise.all([openMigrated('sqlite'), openMigrated('postgres')])
    const schema = await schemaOf(sqlite.storage)
    expect(Object.keys(schema).length).toBeGreaterThan(20)
    expect(schema.audit_logs).toMatchObject({
      primaryKey: ['chain', 'seq'],
      unique: ['id'],
      indexes: expect.arrayContaining(['audit_logs_time: timestamp, id']),
    })
    expect(schema.organizations?.indexes).toContain(
      'organizations_live_slug: partner_id, slug unique where deleted_at is null',
    )
    expect(schema.enrollment_keys?.indexes).toContain('enrollment_keys_hash: substr(key_hash, 1, 8)')
    expect(schema.sessions?.foreignKeys).toEqual([
      'sso_provider_id -> sso_providers(id) on delete cascade',
      'user_id -> users(id) on delete cascade',
    ])
    expect(await schemaOf(postgres.storage)).toEqual(schema)
    expect(await uncollated(postgres.storage)).toEqual([])
    await Promise.all([sqlite.close(), postgres.close()])
  })

  it('differ in src/storage only', () => {
    const sources = productSources()
    console.log(`Raw SQL outside src/storage is allowed in: ${JSON.stringify(allowed, null, 2)}`)
    expect(rawSqlIn(sources)).toEqual([])
    // Unneeded exceptions must be removed.
    const needed = sources.filter(
      ({ path, text }) => path in allowed && rawSqlIn([{ path: 'src/x.ts', text }]).length > 0,
    )
    expect(needed.map(({ path }) => path)).toEqual(Object.keys(allowed))
  })

  it.each(['await sql`select 1`.execute(db)', 'sql<number>`now()`', 'sql.raw(text)'])(
    'would differ by %s',
    (text) => {
      expect(rawSqlIn([{ path: 'src/devices/store.ts', text }])).toEqual(['src/devices/store.ts:1'])
    },
  )
})

const happening = {
  orgId: null,
  actorType: 'system' as const,
  actorId: null,
  actorEmail: null,
  action: 'test.happened',
  resourceType: 'test',
  resourceId: null,
  resourceName: null,
  details: {},
  ipAddress: null,
  userAgent: null,
  result: 'success' as const,
}

onEveryDatabase((kind, open) => {
  describe('the audit log', () => {
    const withEntry = async (): Promise<Storage> => {
      const { storage } = await open()
      await storage.write((tx) => recordAudit(tx, toDraftEntry(happening, '2026-03-01T12:00:00.000Z')))
      await sealPending(storage)
      return storage
    }
    const count = async (storage: Storage) =>
      (await storage.read.selectFrom('audit_logs').select('id').execute()).length

    const changes: Record<string, (storage: Storage) => Promise<unknown>> = {
      'a changed row': (it) => it.write((tx) => tx.updateTable('audit_logs').set({ action: 'x' }).execute()),
      'an unchanged row written back': (it) =>
        it.write((tx) =>
          tx
            .updateTable('audit_logs')
            .set((eb) => ({ action: eb.ref('action') }))
            .execute(),
        ),
      'a deleted row': (it) => it.write((tx) => tx.deleteFrom('audit_logs').execute()),
      ...(kind === 'postgres' && {
        'a truncated table': (it) => it.write((tx) => sql`truncate audit_logs`.execute(tx)),
        'a truncated table with cascade': (it) =>
          it.write((tx) => sql`truncate audit_logs cascade`.execute(tx)),
      }),
      'the same place in the chain twice': (it) =>
        it.write((tx) =>
          tx
            .insertInto('audit_logs')
            .expression((eb) => eb.selectFrom('audit_logs').selectAll())
            .execute(),
        ),
    }

    it('seals any text, so that nothing can stop a chain', async () => {
      const { storage } = await open()
      const odd = 'a\ud800\u0000\uffff'
      const happened = {
        ...happening,
        details: { [odd]: [{ [odd]: odd }], deep: JSON.parse(deep(32)) },
        actorEmail: odd,
        resourceId: odd,
        resourceName: odd.repeat(200),
        userAgent: odd.repeat(500),
        errorMessage: odd,
      }
      await storage.write((tx) => recordAudit(tx, toDraftEntry(happened, '2026-03-01T12:00:00.000Z')))
      await storage.write((tx) => recordAudit(tx, toDraftEntry(happening, '2026-03-01T12:00:00.000Z')))
      await sealPending(storage)
      expect(await count(storage)).toBe(2)
    })

    it.each(Object.keys(changes))('refuses %s', async (name) => {
      const storage = await withEntry()
      expect(await count(storage)).toBe(1)
      const twice = name === 'the same place in the chain twice'
      await expect(changes[name]!(storage)).rejects.toThrow(twice ? /unique/i : 'audit log is append-only')
      expect(await count(storage)).toBe(1)
    })
  })
})
