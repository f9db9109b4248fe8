import { sql } from 'kysely'
import { beforeAll, describe, expect, test } from 'vitest'
import { fold } from '../../src/core/fold.ts'
import { ofOne, organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import { isForeignKeyViolation, violatedUniqueKey } from '../../src/storage/database-errors.ts'
import type { Storage } from '../../src/storage/open.ts'
import { contains, foldCase } from '../../src/storage/query/expressions.ts'
import { forUpdate } from '../../src/storage/query/locks.ts'
import { inScope, inScopeHistory, inSites } from '../../src/storage/query/scope.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

onEveryEmptyDatabase((kind, open) => {
  describe('scope', () => {
    let storage: Storage
    beforeAll(async () => {
      storage = (await open()).storage
      await storage.write(async (tx) => {
        await sql`create table organizations (id text primary key, partner_id text, deleted_at text)`.execute(
          tx,
        )
        await sql`insert into organizations values
          ('a1', 'a', null), ('a2', 'a', null), ('a-gone', 'a', '2026-01-01'), ('b1', 'b', null)`.execute(tx)
        await sql`create table things (org_id text, site_id text)`.execute(tx)
        await sql`insert into things values
          ('a1', 's1'), ('a1', 's2'), ('a2', 's3'), ('a-gone', 's4'), ('b1', 's5'), (null, null)`.execute(tx)
      })
    })

    const held = async (scope: Scope, within: typeof inScope): Promise<(string | null)[]> => {
      const { rows } = await sql<{ org_id: string | null }>`select distinct t.org_id from things as t
        where ${within(scope, 't.org_id')} and ${inSites(scope, 't.site_id')}`.execute(storage.read)
      return rows.map((row) => row.org_id).sort()
    }
    const seen = async (scope: Scope, within = inScope): Promise<(string | null)[]> => {
      const found = await held(scope, within)
      expect(await held(ofOne(scope), within)).toEqual(found)
      return found
    }
    const partner = (orgs: 'all' | string[]): Scope => ({ kind: 'partner', partnerId: 'a', orgs })

    test('system sees everything that is not deleted, including rows of no organization', async () => {
      expect(await seen(systemScope)).toEqual(['a1', 'a2', 'b1', null])
    })

    test('the history of deleted organizations is visible to system and to their partner users', async () => {
      expect(await seen(systemScope, inScopeHistory)).toEqual(['a-gone', 'a1', 'a2', 'b1', null])
      expect(await seen(partner('all'), inScopeHistory)).toEqual(['a-gone', 'a1', 'a2'])
      expect(await seen(partner(['a2', 'a-gone', 'b1']), inScopeHistory)).toEqual(['a-gone', 'a2'])
      expect(await seen(partner(['a2']), inScopeHistory)).toEqual(['a2'])
      expect(await seen(partner([]), inScopeHistory)).toEqual([])
      expect(await seen(organizationScope('b1'), inScopeHistory)).toEqual(['b1'])
    })

    test('a partner sees its organizations that are not deleted', async () => {
      expect(await seen(partner('all'))).toEqual(['a1', 'a2'])
    })

    test('a partner user sees only granted organizations of its own partner', async () => {
      expect(await seen(partner(['a2', 'a-gone', 'b1']))).toEqual(['a2'])
    })

    test('a partner user without organizations sees nothing', async () => {
      expect(await seen(partner([]))).toEqual([])
    })

    test('an organization sees only itself', async () => {
      expect(await seen(organizationScope('b1'))).toEqual(['b1'])
      expect(await seen(organizationScope(`b1' or 'a' = 'a`))).toEqual([])
    })

    test('a member of some sites sees only those sites', async () => {
      const sites = async (siteIds: string[]) => {
        const scope: Scope = { kind: 'organization', orgId: 'a1', siteIds, groupIds: null }
        const { rows } = await sql<{ site_id: string }>`select site_id from things
          where ${inScope(scope, 'org_id')} and ${inSites(scope, 'site_id')}`.execute(storage.read)
        return rows.map((row) => row.site_id)
      }
      expect(await sites(['s2', 's5'])).toEqual(['s2'])
      expect(await sites([])).toEqual([])
    })

    test('scopes can be combined with other conditions', async () => {
      const rows = await storage.read
        .selectFrom('organizations')
        .select('organizations.id')
        .where(inScope(partner('all'), 'organizations.id'))
        .where((eb) => eb.or([eb('id', '=', 'a1'), inScope(partner([]), 'organizations.id')]))
        .execute()
      expect(rows).toEqual([{ id: 'a1' }])
    })
  })

  describe('text search', () => {
    let storage: Storage
    beforeAll(async () => {
      storage = (await open()).storage
    })

    const isContained = async (text: string | null, needle: string): Promise<boolean> => {
      const query = sql<{ held: number }>`select 1 as held from (select cast(${text} as text) as body) as t
        where ${contains('t.body', needle)}`
      return (await query.execute(storage.read)).rows.length > 0
    }

    test.each([
      ['Web-01.example', 'WEB', true],
      ['web-01', 'eb-0', true],
      ['web-01', 'web-02', false],
      ['anything', '', true],
      ['100%', '%', true],
      ['100 percent', '%', false],
      ['a_b', '_', true],
      ['ab', '_', false],
      ['a\\b', '\\', true],
      ['ab', '\\', false],
      ['100% \\_', '% \\_', true],
      ["O'Brien", "o'b", true],
      ['Ångström', 'ÅNGSTRÖM', true],
      ['ÅNGSTRÖM', 'ångström', true],
      ['МОСКВА', 'москва', true],
      ['caf\u00e9', 'CAFE\u0301', true],
      ['cafe\u0301', 'CAF\u00c9', true],
      ['ΟΔΟΣ', 'οδος', true],
      ['ΟΔΟΣΑΣ', 'ΟΔΟΣ', true],
      ['οδός', 'ΔΌΣ', true],
      ['İstanbul', 'İSTANBUL', true],
      ['İstanbul', 'i\u0307stanbul', true],
      ['Straße', 'STRAẞE', true],
      ['Straße', 'strasse', false],
      ['ﬁle', 'FILE', true],
      ['Ｗｉｄｅ', 'wide', true],
      ['50％', '%', true],
      ['①②', '12', true],
      ['😀 Server', '😀 server', true],
      ['日本語', '本', true],
    ])('%s contains %s: %s', async (text, needle, expected) => {
      expect(await isContained(text, needle)).toBe(expected)
      expect(fold(text).includes(fold(needle))).toBe(expected)
    })

    test('null contains nothing', async () => {
      expect(await isContained(null, '')).toBe(false)
      expect(await isContained(null, 'x')).toBe(false)
    })

    test('the database folds case as the process does, for every letter', async () => {
      // Without the Georgian capitals and their neighbors: the Unicode 10 of the test server lacks them.
      const codes = Array.from({ length: 0x2c00 - 0x20 }, (_, i) => i + 0x20)
      const letters = codes.filter((it) => it < 0x1c89 || it > 0x1cbf).map((it) => String.fromCodePoint(it))
      await storage.write(async (tx) => {
        await sql`create table letters (letter text)`.execute(tx)
        for (let i = 0; i < letters.length; i += 1000) {
          const rows = letters.slice(i, i + 1000).map((letter) => sql`(${letter})`)
          await sql`insert into letters values ${sql.join(rows)}`.execute(tx)
        }
      })
      const { rows } = await sql<{ letter: string; folded: string }>`
        select letter, ${foldCase('letter')} as folded from letters`.execute(storage.read)
      expect(rows).toHaveLength(letters.length)
      expect(rows.filter((row) => row.folded !== fold(row.letter))).toEqual([])
    })
  })

  test('rows can be locked on Postgres, where others skip them', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await storage.write((tx) => addNote(tx, 1))
    const notes = (db: typeof storage.read) =>
      forUpdate((db as never as typeof storage.read).selectFrom('notes' as never).select('id' as never), {
        skipLocked: true,
      })
    expect(notes(storage.read).compile().sql.includes('for update skip locked')).toBe(kind === 'postgres')
    const found = await storage.write(async (tx) => {
      const mine = await notes(tx).execute()
      const others = kind === 'postgres' ? await notes(storage.read).execute() : []
      return { mine, others }
    })
    expect(found).toEqual({ mine: [{ id: 1 }], others: [] })
  })

  test('a uniqueness violation names the columns, alike on both databases', async () => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      await sql`create table people (id text primary key, org_id text, email text, gone integer)`.execute(tx)
      await sql`create unique index people_email on people (org_id, email) where gone is null`.execute(tx)
      await sql`create unique index people_lower on people (lower(email))`.execute(tx)
    })
    const add = (id: string, org: string, email: string) =>
      storage
        .write((tx) =>
          sql`insert into people (id, org_id, email) values (${id}, ${org}, ${email})`.execute(tx),
        )
        .then(() => 'added', violatedUniqueKey)
    expect(await add('1', 'o', 'a')).toBe('added')
    expect(await add('1', 'o', 'b')).toBe('people.id')
    expect(await add('2', 'p', 'A')).toBe('people_lower')
    await storage.write((tx) => sql`drop index people_lower`.execute(tx))
    expect(await add('2', 'o', 'a')).toBe('people.org_id, people.email')
    expect(violatedUniqueKey(new Error('UNIQUE constraint failed: x.y'))).toBeUndefined()
    expect(violatedUniqueKey(undefined)).toBeUndefined()
  })

  test('a missing parent and a parent still in use are foreign key violations', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await storage.write(async (tx) => {
      await sql`create table replies (note_id integer references notes (id))`.execute(tx)
      await sql`create table strict_replies (note_id integer references notes (id) on delete restrict)`.execute(
        tx,
      )
      await addNote(tx, 1)
      await addNote(tx, 2)
      await sql`insert into replies values (1)`.execute(tx)
      await sql`insert into strict_replies values (2)`.execute(tx)
    })
    for (const statement of [
      sql`insert into replies values (9)`,
      sql`delete from notes where id = 1`,
      sql`delete from notes where id = 2`,
    ]) {
      const failure = await storage.write((tx) => statement.execute(tx)).catch((error: unknown) => error)
      expect(isForeignKeyViolation(failure)).toBe(true)
      expect(violatedUniqueKey(failure)).toBeUndefined()
    }
    expect(isForeignKeyViolation(new Error('no'))).toBe(false)
    expect(await noteIds(storage.read)).toEqual([1, 2])
  })
})
