import { CompiledQuery, sql } from 'kysely'
import { expect, test } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { newId } from '../../src/core/new-id.ts'
import {
  enrollmentKeyHash,
  makeEnrollmentKey,
  newEnrollmentKey,
} from '../../src/credentials/enrollment-keys/rules.ts'
import { findByHash, insertEnrollmentKey } from '../../src/credentials/enrollment-keys/store.ts'
import { migrate } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { isHash } from '../../src/storage/query/expressions.ts'
import { makeOrg } from '../../src/tenancy/organizations/rules.ts'
import { makePartner } from '../../src/tenancy/partners/rules.ts'
import { insertOrg, insertPartner } from '../../src/tenancy/store.ts'
import { noCaps, orgDefaults } from '../bench/world.ts'
import { onEveryEmptyDatabase } from '../databases.ts'

const at = '2026-01-02T03:04:05.678Z'

async function addOrg(storage: Storage): Promise<string> {
  const made = () => ({ id: newId(), now: at })
  const partner = makePartner(
    { name: 'Acme', slug: 'acme', type: 'msp', plan: 'pro', ...noCaps, billingEmail: null },
    made(),
  )
  const org = makeOrg({ name: 'Acme', slug: 'acme', ...orgDefaults }, partner.id, made())
  await storage.write(async (tx) => {
    await insertPartner(tx, partner)
    await insertOrg(tx, org)
  })
  return org.id
}

async function addKey(storage: Storage, orgId: string, hash: string): Promise<void> {
  const made = { id: newId(), by: newId(), now: at, ttlMinutes: 60 }
  const key = makeEnrollmentKey({ orgId, name: 'Reception', maxUsage: 5 }, made)
  const used = { ...key, usageCount: 1, lastUsedAt: at, lastDeviceId: newId() }
  await storage.write((tx) => insertEnrollmentKey(tx, used, hash))
}

const newHash = () => enrollmentKeyHash('pepper', newEnrollmentKey())

onEveryEmptyDatabase((kind, open) => {
  test('existing keys stay valid after the migration, and are found only by the complete hash', async () => {
    const { storage } = await open()
    const before = migrations.findIndex(({ name }) => name === '0029_key_look_up')
    await migrate(storage, migrations.slice(0, before))
    const orgId = await addOrg(storage)
    const hashes = Array.from({ length: 20 }, newHash)
    for (const hash of hashes) await addKey(storage, orgId, hash)
    const all = () => storage.read.selectFrom('enrollment_keys').selectAll().orderBy('id').execute()
    const stored = await all()
    await migrate(storage, migrations)
    expect(await all()).toEqual(stored)
    // Another hash with the same beginning.
    const twin = hashes[0]!.slice(0, 8) + newHash().slice(8)
    await addKey(storage, orgId, twin)
    const ids = new Map((await all()).map((row) => [row.key_hash, row.id]))
    for (const hash of [...hashes, twin])
      expect((await findByHash(storage.read, hash))?.id).toBe(ids.get(hash))
    expect(await findByHash(storage.read, hashes[1]!.slice(0, 8) + newHash().slice(8))).toBeUndefined()
  })

  test('a key is looked up in the index', async () => {
    const { storage } = await open()
    await migrate(storage, migrations)
    const found = storage.read.selectFrom('enrollment_keys').select('id').where(isHash('key_hash', newHash()))
    const { sql: text, parameters } = found.compile()
    const explain = kind === 'sqlite' ? 'explain query plan' : 'explain'
    const explained = CompiledQuery.raw(`${explain} ${text}`, [...parameters])
    const plan = await storage.write(async (tx) => {
      // An empty table would be scanned.
      if (kind === 'postgres') await sql`set local enable_seqscan = off`.execute(tx)
      return tx.executeQuery(explained)
    })
    expect(JSON.stringify(plan.rows)).toContain('enrollment_keys_hash')
  })
})
