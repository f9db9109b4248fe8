import fc from 'fast-check'
import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { fold } from '../../src/core/fold.ts'
import { organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import { rankOf } from '../../src/search/rules.ts'
import { findAlerts, findDevices, findScripts } from '../../src/search/store.ts'
import type { Storage } from '../../src/storage/open.ts'
import { inScope } from '../../src/storage/query/scope.ts'
import { type RankedSearch, rankedIds } from '../../src/storage/search/ranking.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, seed } from '../depth.ts'
import { addAlert, addDevice, addOrganization, addPartner, addScript, deviceRow } from './fleet.ts'

onEveryDatabase((kind, open) => {
  const fleet = async (hostnames: readonly (string | [string, string])[]) => {
    const { storage } = await open()
    const orgId = await addOrganization(storage, await addPartner(storage))
    for (const name of hostnames) {
      const [hostname, displayName = null] = typeof name === 'string' ? [name] : name
      await addDevice(storage, { orgId, hostname, displayName })
    }
    return { storage, orgId }
  }
  const titles = async (storage: Storage, q: string, scope: Scope = systemScope, max = 8) =>
    (await findDevices(storage.heavy, scope, fold(q), max)).map(({ title }) => title)

  describe('a match', () => {
    it('is ranked: exact, prefix, word, then the rest, each sorted by title', async () => {
      const { storage, orgId } = await fleet([
        'desktop',
        'helpdesk',
        'desk',
        'old-desk',
        'Zz-desk',
        ['pc-1', 'Desk of Ada'],
        ['desk', 'Reception'],
        ['desk-9', 'Annex'],
      ])
      for (const scope of [systemScope, organizationScope(orgId)]) {
        expect(await titles(storage, 'DESK', scope)).toEqual([
          'desk',
          'Reception',
          'Annex',
          'Desk of Ada',
          'desktop',
          'old-desk',
          'Zz-desk',
          'helpdesk',
        ])
        expect(await titles(storage, 'desk', scope, 3)).toEqual(['desk', 'Reception', 'Annex'])
      }
    })

    it('contains the literal text: no character has a special meaning', async () => {
      const odd = ['100%', '100x', 'a_b', 'axb', 'a\\b', "o'brien", '"q"', 'a" OR "b', 'star*', 'NEAR(x y)']
      const more = ['-desk', 'col:hostname_key', '[a-z]', '?x', '^x', '(a|b)', '{2}', '$$', '+++', '\\d']
      const { storage, orgId } = await fleet([...odd, ...more, 'plain'])
      for (const name of [...odd, ...more]) {
        for (const scope of [systemScope, organizationScope(orgId)]) {
          expect([name, await titles(storage, name, scope)]).toEqual([name, [name]])
        }
      }
      for (const q of [
        'desk*',
        'p%n',
        '_____',
        'plain OR star',
        'NEAR(plain star)',
        'plain"',
        '.*',
        'hostname_key:plain',
      ]) {
        expect([q, await titles(storage, q)]).toEqual([q, []])
      }
    })

    it.each([
      ['Straße', 'STRAßE'],
      ['İstanbul', 'İSTANBUL'],
      ['ΟΔΥΣΣΕΥΣ', 'οδυσσευς'],
      ['Οδυσσευς', 'ΟΔΥΣΣΕΥΣ'],
      ['ＦＵＬＬ width', 'full'],
      ['ÄÖÜ', 'äöü'],
      ['東京の机', '京の'],
      ['🚀 rocket', '🚀'],
      ['Ångström', 'Ångström'],
      ['Straße 12', 'ße 1'],
    ])('of %s is found by %s', async (name, q) => {
      const { storage, orgId } = await fleet([name, 'other'])
      expect(await titles(storage, q)).toEqual([name])
      expect(await titles(storage, q, organizationScope(orgId))).toEqual([name])
    })

    it('is found even by a title that is too long for an index', async () => {
      const letters = Array.from({ length: 255 }, (_, i) => String.fromCodePoint(0x4e00 + i * 37)).join('')
      const { storage } = await fleet([`${letters}a`, `${letters}b`, '\ufdfa'.repeat(200)])
      expect(await titles(storage, `${letters.slice(0, 99)}`)).toHaveLength(2)
      expect(await titles(storage, `${letters.slice(200)}b`)).toEqual([`${letters}b`])
      expect(await titles(storage, '\ufdfa'.repeat(100))).toHaveLength(1)
    })

    it('is the same as by a scan of all records', async () => {
      const { storage } = await open()
      const partnerId = await addPartner(storage)
      const orgs = [await addOrganization(storage, partnerId), await addOrganization(storage, partnerId)]
      const letter = fc.constantFrom(...'aabbccdd -_%\\"\'*[]ς東ß'.split(''), '🚀', 'İ')
      const word = fc.string({ unit: letter, maxLength: 7 })
      const device = fc.record({
        hostname: word,
        displayName: fc.option(word.filter((it) => it !== '')),
        org: fc.nat(1),
      })
      const needle = fc.string({ unit: letter, minLength: 1, maxLength: 4 })
      const property = fc.asyncProperty(
        fc.array(device, { minLength: 1, maxLength: 40 }),
        fc.array(needle, { minLength: 4, maxLength: 8 }),
        fc.constantFrom(1, 3, 8),
        async (devices, needles, max) => {
          await storage.write((tx) => tx.deleteFrom('devices').execute())
          const rows = devices.map(({ org, ...names }) => deviceRow({ orgId: orgs[org]!, ...names }))
          await storage.write((tx) => tx.insertInto('devices').values(rows).execute())
          for (const q of needles.map(fold)) {
            for (const scope of [systemScope, organizationScope(orgs[0]!)]) {
              const seen = rows.filter((row) => scope === systemScope || row.org_id === orgs[0])
              const wanted = [q, naively(seen, q).slice(0, max)]
              const found = await findDevices(storage.read, scope, q, max)
              expect([q, found.map(({ id }) => id)]).toEqual(wanted)
              // With the plans for a large fleet, and for a text in many of its names.
              for (const bounds of [
                { few: 0, rare: 2000 },
                { few: 0, rare: 2 },
                { few: 0, rare: 0 },
              ]) {
                expect([q, await rankedIds(storage.read, allOf(scope), q, max, bounds)]).toEqual(wanted)
              }
            }
          }
        },
      )
      await fc.assert(property, { seed, numRuns: depth(15, 200) })
    })
  })

  describe('the index', () => {
    it('follows every kind of rename', async () => {
      const { storage } = await fleet(['oldname', 'bystander'])
      const rename = (columns: object) =>
        storage.write((tx) =>
          tx.updateTable('devices').set(columns).where('hostname_key', '=', 'oldname').executeTakeFirst(),
        )
      const { numUpdatedRows } = await rename({ display_name: 'Frontdoor', display_name_key: 'frontdoor' })
      expect(Number(numUpdatedRows)).toBe(1)
      expect(await titles(storage, 'frontdoor')).toEqual(['Frontdoor'])
      expect(await titles(storage, 'oldname')).toEqual(['Frontdoor'])
      await rename({ display_name: null, display_name_key: null })
      expect(await titles(storage, 'frontdoor')).toEqual([])
      await rename({ hostname: 'Newname', hostname_key: 'newname' })
      expect(await titles(storage, 'oldname')).toEqual([])
      expect(await titles(storage, 'ewna')).toEqual(['Newname'])
      expect(await titles(storage, 'bystander')).toEqual(['bystander'])
    })

    it('forgets deleted records, also those deleted by cascade', async () => {
      const { storage, orgId } = await fleet([])
      const deviceId = await addDevice(storage, { orgId, hostname: 'printer' })
      await addAlert(storage, { orgId, deviceId, title: 'Out of paper' })
      const alerts = async () => (await findAlerts(storage.heavy, systemScope, 'paper', 8)).length
      expect(await alerts()).toBe(1)
      await storage.write((tx) => tx.deleteFrom('devices').where('id', '=', deviceId).execute())
      expect(await titles(storage, 'printer')).toEqual([])
      expect(await alerts()).toBe(0)
      await addDevice(storage, { orgId, hostname: 'printer' })
      expect(await titles(storage, 'printer')).toEqual(['printer'])
      if (kind === 'sqlite') {
        for (const table of ['alerts', 'devices']) {
          const { rows } = await sql
            .raw<{ kept: number }>(`select count(*) as kept from ${table}_trigrams_rows`)
            .execute(storage.read)
          expect(rows[0]!.kept).toBe(table === 'devices' ? 1 : 0)
        }
      }
    })

    it('ignores a write that failed', async () => {
      const { storage, orgId } = await fleet(['stays'])
      const row = deviceRow({ orgId, hostname: 'never-was' })
      const failing = storage.write(async (tx) => {
        await tx.insertInto('devices').values(row).execute()
        await tx.updateTable('devices').set({ hostname: 'changed', hostname_key: 'changed' }).execute()
        throw new Error('no')
      })
      await expect(failing).rejects.toThrow('no')
      expect(await titles(storage, 'never-was')).toEqual([])
      expect(await titles(storage, 'changed')).toEqual([])
      expect(await titles(storage, 'stays')).toEqual(['stays'])
    })

    it('is not written by a heartbeat with an unchanged name', async () => {
      const { storage } = await fleet(['steady'])
      const size = async () => {
        if (kind === 'postgres') return 0
        const { rows } = await sql<{ n: number }>`select count(*) as n from devices_trigrams_data`.execute(
          storage.read,
        )
        return rows[0]!.n
      }
      const before = await size()
      for (let i = 0; i < 5; i++) {
        const beat = {
          hostname: 'steady',
          hostname_key: 'steady',
          last_seen_at: `2026-03-01T12:00:0${i}.000Z`,
        }
        await storage.write((tx) => tx.updateTable('devices').set(beat).execute())
      }
      expect(await size()).toBe(before)
      expect(await titles(storage, 'steady')).toEqual(['steady'])
    })

    it.runIf(kind === 'sqlite')('survives VACUUM, which renumbers rows', async () => {
      const { storage, orgId } = await fleet(['gone', 'first', 'second'])
      await storage.write((tx) => tx.deleteFrom('devices').where('hostname', '=', 'gone').execute())
      const rowids = async () => {
        const query = sql<{ rowid: number }>`select rowid from devices order by hostname`
        return (await query.execute(storage.read)).rows.map(({ rowid }) => rowid)
      }
      const before = await rowids()
      const { rows } = await sql<{ file: string }>`select file from pragma_database_list`.execute(
        storage.read,
      )
      const { default: Database } = await import('better-sqlite3')
      const other = new Database(rows[0]!.file)
      // VACUUM is allowed, though rarely used.
      other.exec('update devices set rowid = rowid + 100')
      other.function('fold', (text) => fold(String(text)))
      other.exec('vacuum')
      other.close()
      expect(await rowids()).not.toEqual(before)
      expect(await titles(storage, 'first')).toEqual(['first'])
      expect(await titles(storage, 'second')).toEqual(['second'])
      await addDevice(storage, { orgId, hostname: 'third' })
      expect(await titles(storage, 'third')).toEqual(['third'])
    })
  })

  describe('texts besides the title', () => {
    it('are searched, ranked and sorted the same way', async () => {
      const { storage, orgId } = await fleet([])
      await addScript(storage, { orgId, name: 'Clean up', description: 'disk' })
      await addScript(storage, { orgId, name: 'Disk report' })
      await addScript(storage, { orgId, name: 'Backup', description: 'Copies the disk' })
      await addScript(storage, { orgId, name: 'Gone', description: 'disk', deleted: true })
      for (const scope of [systemScope, organizationScope(orgId)]) {
        const found = await findScripts(storage.heavy, scope, 'disk', 8)
        expect(found.map(({ title }) => title)).toEqual(['Clean up', 'Disk report', 'Backup'])
      }
    })
  })
})

const allOf = (scope: Scope): RankedSearch => ({
  table: 'devices',
  title: ['display_name_key', 'hostname_key'],
  where: inScope(scope, 'devices.org_id'),
  whole: scope.kind === 'system',
})

type Row = ReturnType<typeof deviceRow>

const bytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))

/** The IDs of the rows that contain `q`, in the expected order. */
function naively(rows: readonly Row[], q: string): string[] {
  return rows
    .flatMap((row) => {
      const names = [row.display_name_key, row.hostname_key].filter((it) => it !== null)
      const rank = Math.min(...names.map((name) => rankOf(name, q) ?? 4))
      return rank < 4 ? [{ id: row.id, rank, title: names[0]! }] : []
    })
    .sort((a, b) => a.rank - b.rank || bytes(a.title, b.title) || bytes(a.id, b.id))
    .map(({ id }) => id)
}
