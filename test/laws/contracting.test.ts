import { sql } from 'kysely'
import semverCompare from 'semver/functions/compare.js'
import semverValid from 'semver/functions/valid.js'
import { expect, it } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { type Migration, migrate } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { version } from '../../src/version.ts'
import { onEveryDatabase, onEveryEmptyDatabase } from '../databases.ts'
import { sourcesWith } from '../storage/migration-files.ts'
import { broken, shapeOf } from './compatibility.ts'
import { schemaOf } from './schema.ts'

/*
 * During a rolling upgrade, and after a roll-back, the previous release works with the schema of the next one. A migration
 * that takes something away declares `oldestVersion`, which every version below it obeys.
 */

/** From this migration on, a release works with the schema of the next one. */
const first = '0032_accepted_memberships'

/** What migrations take away without a declaration. */
async function undeclared(
  storage: Storage,
  list: readonly Migration[],
  from: number,
  options = {},
): Promise<string[]> {
  await migrate(storage, list.slice(0, from), options)
  let before = await shapeOf(storage)
  const found: string[] = []
  for (const [n, { name, oldestVersion }] of [...list.entries()].slice(from)) {
    await migrate(storage, list.slice(0, n + 1), options)
    const after = await shapeOf(storage)
    if (oldestVersion === undefined) found.push(...broken(before, after).map((what) => `${name}: ${what}`))
    before = after
  }
  return found
}

onEveryEmptyDatabase((_kind, open) => {
  it('a migration that the previous release cannot work beside declares oldestVersion', async () => {
    const { storage } = await open()
    const from = migrations.findIndex(({ name }) => name === first)
    expect(await undeclared(storage, migrations, from)).toEqual([])
  })
})

/** Each takes something away, and what is found; some are spelled otherwise on SQLite, or have no spelling there. */
const harms: { postgres: string; sqlite?: string; found: RegExp }[] = [
  { postgres: 'alter table sites drop column contact', found: /^sites\.contact is gone$/ },
  {
    postgres: 'alter table sites rename column contact to person',
    found: /^sites\.contact is gone$/,
  },
  { postgres: 'alter table probes rename to checks', found: /^probes is gone$/ },
  { postgres: 'drop table probes', found: /^probes is gone$/ },
  {
    postgres: 'create unique index once on sites (timezone)',
    found: /^sites: timezone is unique from now on$/,
  },
  {
    postgres: 'alter table sites add column floor text not null',
    sqlite: rebuilt('floor text not null'),
    found: /^sites\.floor has to be given$/,
  },
  {
    postgres: 'alter table sites alter column contact set not null',
    sqlite: rebuilt('contact text not null'),
    found: /^sites\.contact may not be null any more$/,
  },
  {
    postgres: 'alter table sites alter column contact type varchar(9)',
    sqlite: rebuilt('contact integer'),
    found: /^sites\.contact is of another type$/,
  },
  {
    postgres: `alter table sites add check (contact <> 'x')`,
    sqlite: rebuilt(`contact text check (contact <> 'x')`),
    found: /^sites: check .*contact.* is refused from now on$/i,
  },
  {
    postgres: 'alter table sites add foreign key (contact) references organizations (id)',
    sqlite: rebuilt('contact text references organizations (id)'),
    found: /^sites: contact -> organizations\(id\) is refused from now on$/,
  },
]

/** A table of this name in place of `sites`, as SQLite changes one: only with the column that is looked at. */
function rebuilt(column: string): string {
  return `rebuild ${column}`
}

onEveryDatabase((kind, open) => {
  it.each(harms)('$postgres is found', async ({ postgres, sqlite, found }) => {
    const { storage } = await open()
    const before = await shapeOf(storage)
    await storage.write(async (tx) => {
      const statement = (kind === 'sqlite' && sqlite) || postgres
      const column = /^rebuild (.*)$/.exec(statement)?.[1]
      if (column === undefined) return void (await sql.raw(statement).execute(tx))
      const { rows } = await sql<{
        text: string
      }>`select sql as text from sqlite_schema where name = 'sites'`.execute(tx)
      const [name = ''] = column.split(' ')
      const text = rows[0]!.text
      const own = new RegExp(`"${name}" text(?=[,)])`)
      const changed = own.test(text) ? text.replace(own, column) : text.replace(/\(/, `(${column}, `)
      await sql`pragma defer_foreign_keys = on`.execute(tx)
      await sql`alter table sites rename to former`.execute(tx)
      await sql.raw(changed).execute(tx)
    })
    expect(broken(before, await shapeOf(storage))).toContainEqual(expect.stringMatching(found))
  })

  it('a unique index that upserts name, and a default, are missed when they are dropped', async () => {
    const { storage } = await open()
    const before = await shapeOf(storage)
    const [table, { indexes }] = Object.entries(await schemaOf(storage)).find(([, it]) =>
      it.indexes.some((one) => / unique$/.test(one)),
    )!
    const [name = '', columns = ''] = indexes.find((one) => / unique$/.test(one))!.split(/: | unique/)
    const filled = [...before.tables]
      .flatMap(([table, columns]) => [...columns].map(([column, it]) => ({ table, column, ...it })))
      .find((it) => it.isFilled && !it.isNullable && it.type === 'text')!
    await storage.write(async (tx) => {
      await sql`drop index ${sql.id(name)}`.execute(tx)
      if (kind === 'sqlite') return
      await sql`alter table ${sql.table(filled.table)} alter column ${sql.id(filled.column)} drop default`.execute(
        tx,
      )
    })
    const lost = kind === 'sqlite' ? [] : [`${filled.table}.${filled.column} has no default any more`]
    expect(broken(before, await shapeOf(storage)).sort()).toEqual(
      [...lost, `${table}: ${columns} is not unique any more`].sort(),
    )
  })

  it('a trigger that refuses rows is found', async () => {
    const { storage } = await open()
    const before = await shapeOf(storage)
    const trigger =
      kind === 'sqlite'
        ? `create trigger no_more before insert on sites begin select raise(abort, 'no'); end`
        : `create function no_more() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
           create trigger no_more before insert on sites for each row execute function no_more()`
    await storage.write((tx) => sql.raw(trigger).execute(tx))
    expect(broken(before, await shapeOf(storage))).toEqual([
      expect.stringMatching(/^sites: [\s\S]* is refused from now on$/),
    ])
  })

  it('a migration that does so is found by its name, unless it declares the oldest version', async () => {
    const { storage } = await open()
    const dropping = (name: string, table: string): Migration => ({
      name,
      up: async ({ db }) => {
        await db.schema.dropTable(table).execute()
      },
    })
    const declared = { ...dropping('9998_declared', 'probes'), oldestVersion: version }
    const list = [...migrations, declared, dropping('9999_forgotten', 'webhook_deliveries')]
    const found = await undeclared(storage, list, migrations.length, await sourcesWith(list))
    expect(found).toEqual(['9999_forgotten: webhook_deliveries is gone'])
  })

  it('new tables, columns that may be left out, their keys and further indexes are not', async () => {
    const { storage } = await open()
    const before = await shapeOf(storage)
    await storage.write(async (tx) => {
      for (const statement of [
        'create table rooms (id text primary key, site_id text not null references sites (id), name text not null unique)',
        'alter table sites add column floor text references rooms (id)',
        `alter table sites add column color text not null default 'red' check (color <> '')`,
        'create unique index sites_floor on sites (floor)',
        'create index sites_color on sites (color)',
      ])
        await sql.raw(statement).execute(tx)
    })
    expect(broken(before, await shapeOf(storage))).toEqual([])
  })
})

it('an oldest version is one that exists, and this one may use its own schema', () => {
  const declared = migrations.flatMap(({ name, oldestVersion }) =>
    oldestVersion === undefined ? [] : [{ name, oldestVersion }],
  )
  const wrong = declared.filter(
    ({ oldestVersion }) => semverValid(oldestVersion) === null || semverCompare(oldestVersion, version) > 0,
  )
  expect(wrong).toEqual([])
})
