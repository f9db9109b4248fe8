import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import type { AnyDb } from '../../../src/storage/columns.ts'
import { openMigrated, temporaryFolder } from '../../databases.ts'
import { testSecrets } from '../../harness.ts'
import { administer } from '../../postgres-databases.ts'
import { svc } from '../backup/binary.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { failedStart } from '../process.ts'
import { copied, planned } from './copies.ts'

const migrated = async (kind: (typeof kinds)[number]): Promise<Place> => {
  const { dataDir, databaseUrl, storage } = await openMigrated(kind)
  await storage.close()
  return { dataDir, databaseUrl }
}

const refused = (from: Place, to: Place, says: RegExp) =>
  Promise.all([
    expect(planned(from, to)).rejects.toThrow(says),
    expect(copied(from, to)).rejects.toThrow(says),
  ])

const changed = (place: Place, work: (db: AnyDb) => Promise<unknown>) =>
  withStorage(place, ({ write }) => write((tx) => work(tx as AnyDb)))

describe.each(kinds)('from %s', (kind) => {
  it('a copy is refused where it would harm something, with the reason', async () => {
    const from = await migrated(kind)
    await refused(from, from, /is the database that is to be copied/)
    for (const other of kinds)
      await refused(from, await migrated(other), /is not empty, and a copy overwrites nothing/)
    await refused(await emptyPlace(kind), await emptyPlace(kind), /There is no database|is empty/)

    // One that a copy of another database has begun.
    const to = await emptyPlace(kind === 'sqlite' ? 'postgres' : 'sqlite')
    await copied(from, to)
    await refused(from, await emptyPlace('sqlite'), /This database was moved to .* on .*--reopen/)
    expect((await failedStart(from)).stderr).toMatch(
      /This database was moved to .*--reopen opens this one again/,
    )
    const { createProgress } = await import('../../../src/storage/copy/progress.ts')
    await changed(to, (db) => createProgress(db, 'of another', '2026-03-01T12:00:00.000Z'))
    const next = await migrated(kind)
    await refused(next, to, /holds the unfinished copy of another database/)
    expect((await failedStart(to)).stderr).toMatch(
      /A copy into this database did not finish: repeat svc db copy/,
    )
    await expect(planned(to, await emptyPlace('sqlite'))).rejects.toThrow(/did not finish/)

    const folder = await emptyPlace('sqlite')
    await mkdir(join(folder.dataDir, 'checkpoints'))
    await writeFile(join(folder.dataDir, 'checkpoints', 'system'), 'of another')
    await refused(next, folder, /checkpoints\/system is of another installation/)

    const newer = { name: '9999_later', checksum: 'a', applied_at: '' }
    await changed(next, (db) => db.insertInto('svc_migrations').values(newer).execute())
    await refused(next, await emptyPlace('sqlite'), /has a newer schema \(9999_later\)/)
  })
})

describe('the target', () => {
  it('is named once, and without a password', async () => {
    const from = await migrated('sqlite')
    const fails = async (args: string[], env: Record<string, string>, says: RegExp) => {
      const { code, stderr } = await svc(['db', 'copy', ...args], from, { ...testSecrets, ...env })
      expect([code, stderr]).toEqual([expect.any(Number), expect.stringMatching(says)])
      expect(code).not.toBe(0)
      expect(stderr).not.toContain('hunter2')
    }
    await fails([], {}, /Name one target/)
    await fails(['--to', '/x'], { TARGET_DATABASE_URL: 'postgres://localhost/a' }, /Name one target/)
    await fails(
      ['--to', 'postgres://a:hunter2@localhost/b'],
      {},
      /--to has a password, which others can read/,
    )
    for (const name of ['password', 'sslpassword'])
      await fails(['--to', `postgres://a@localhost/b?${name}=hunter2`], {}, /--to has a password/)
    await fails(
      [],
      { TARGET_DATABASE_URL: 'mysql://a:hunter2@b' },
      /TARGET_DATABASE_URL must begin with postgres/,
    )
    await fails(
      [],
      { TARGET_DATABASE_URL: 'postgres://a:hunter2#@127.0.0.1:1/b' },
      /TARGET_DATABASE_URL is not a valid URL|Cannot use/,
    )
    await fails(['--reopen', '--to', '/x'], {}, /--reopen/)
    await fails(['--reopen', '--yes'], {}, /was not moved/)
    const file = join(await temporaryFolder(), 'url')
    await writeFile(file, 'postgres://a:hunter2@127.0.0.1:1/b\n')
    await fails([], { TARGET_DATABASE_URL_FILE: file }, /Cannot use PostgreSQL at 127.0.0.1:1, database b/)
  })

  it('is refused without the right to make tables, and a plan leaves no trace', async () => {
    const [from, to] = [await migrated('sqlite'), await emptyPlace('postgres')]
    const role = `copier_${process.pid}`
    await administer((client) => client.query(`create role ${role} login password 'p'`))
    const url = new URL(to.databaseUrl!)
    Object.assign(url, { username: role, password: 'p' })
    try {
      await refused(
        from,
        { ...to, databaseUrl: url.href },
        /The role may not create tables in PostgreSQL at /,
      )
    } finally {
      await administer((client) => client.query(`drop role ${role}`))
    }
    expect(await planned(from, to)).toMatchObject({ target: { state: 'empty' } })
    const client = new pg.Client(to.databaseUrl)
    await client.connect()
    const { rows } = await client
      .query("select * from pg_tables where schemaname = 'public'")
      .finally(() => client.end())
    expect(rows).toEqual([])
    const folder = await emptyPlace('sqlite')
    await planned(from, folder)
    expect(await readdir(folder.dataDir)).toEqual([])
  })

  it('is not begun by a role that could not close the source, beside tables of others', async () => {
    const [from, to] = [await migrated('postgres'), await emptyPlace('sqlite')]
    const role = `closer_${process.pid}`
    const client = new pg.Client(from.databaseUrl)
    await client.connect()
    const url = new URL(from.databaseUrl!)
    Object.assign(url, { username: role, password: 'p' })
    const own = { ...from, databaseUrl: url.href }
    try {
      await client.query(`create table of_another (id integer generated by default as identity primary key);
        create role ${role} login password 'p';
        grant select on all tables in schema public to ${role}`)
      await refused(own, to, /does not own the table .*, and cannot close it/)
      const { rows } = await client.query(
        `select tablename as name from pg_tables where schemaname = 'public' and tablename <> 'of_another'`,
      )
      for (const { name } of rows) await client.query(`alter table ${name} owner to ${role}`)
      await refused(own, to, /may not create tables in its schema, and cannot close it/)
      await client.query(`grant create on schema public to ${role}`)
      await copied(own, to)
      await client.query('insert into of_another default values')
      await expect(client.query('delete from probes')).rejects.toThrow('This database was moved to')
    } finally {
      await client.query(`drop owned by ${role} cascade; drop role ${role}`).finally(() => client.end())
    }
  })

  it('is described on 80 columns', async () => {
    const from = await migrated('sqlite')
    const { dataDir } = await emptyPlace('sqlite')
    const { stdout, code } = await svc(['db', 'copy', '--to', dataDir, '--dry-run'], from)
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^From .*\nto .*:\n {2}\d+ rows of \d+ tables, [\d.]+ \wiB\n {2}will take about \d+ s, and then refuse writes for about \d+ s\n$/,
    )
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })
})
