import { describe, expect, it } from 'vitest'
import { isMoved } from '../../../daemon/backup/contents.ts'
import type { AnyDb } from '../../../src/storage/columns.ts'
import { blockWrites } from '../../../src/storage/copy/moved.ts'
import { describeLocation } from '../../../src/storage/copy/target.ts'
import { checkVersion } from '../../../src/storage/oldest-version.ts'
import { version } from '../../../src/version.ts'
import { openMigrated } from '../../databases.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { copied, copiedWhile, placeOf, planned } from './copies.ts'

const migrated = async (): Promise<Place> => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  return { dataDir }
}

/** All rows are there, and the last step is not. */
async function leaveUnfinished(from: Place, to: Place): Promise<void> {
  const copy = copiedWhile(from, to, (_, pass) => {
    if (pass === 'last') throw new Error('killed')
  })
  await expect(copy).rejects.toThrow('killed')
}

const takesWrites = (place: Place) =>
  withStorage(place, ({ write }) => write((tx) => tx.updateTable('probes').set({ at: 'now' }).execute()))

const row = { token_hash: 'a', content: 'of another program', expires_at: '2026' }

describe.each(kinds)('a copy to %s', (kind) => {
  it('is refused when the source was migrated meanwhile', async () => {
    const changes = [
      `insert into svc_migrations select '9999_next', checksum, '2026-03-01T12:00:00.000Z' from svc_migrations limit 1`,
      'alter table users add column note text',
    ]
    for (const change of changes) {
      const from = await migrated()
      let isDone = false
      const copy = copiedWhile(from, await emptyPlace(kind), (database) => {
        if (!isDone) database.exec(change)
        isDone = true
      })
      await expect(copy).rejects.toThrow(/was migrated meanwhile, and still takes writes: name an empty/)
      await takesWrites(from)
    }
  })

  it('does not end an unfinished one after the source moved elsewhere', async () => {
    const [from, to, other] = [await migrated(), await emptyPlace(kind), await emptyPlace(kind)]
    await leaveUnfinished(from, other)
    await copied(from, to)
    await expect(planned(from, other)).rejects.toThrow(/This database was moved to /)
    await expect(copied(from, other)).rejects.toThrow(/This database was moved to /)
    await expect(copied(from, to)).rejects.toThrow(/This database was moved to /)
  })

  it('does not open the target when the source was opened again meanwhile', async () => {
    const [from, to] = [await migrated(), await emptyPlace(kind)]
    await leaveUnfinished(from, to)
    const move = { target: describeLocation(to), at: '2026-03-01T12:00:00.000Z' }
    await withStorage(from, ({ write }) => write((tx) => blockWrites(tx as AnyDb, 'sqlite', move, isMoved)))
    let isOpened = false
    const copy = copiedWhile(from, to, (database) => {
      if (isOpened) return
      isOpened = true
      const names = database.prepare("select name from sqlite_schema where type = 'trigger'").pluck().all()
      for (const name of names) if (/^svc_moved_/.test(String(name))) database.exec(`drop trigger "${name}"`)
      database.exec('drop table svc_moved')
    })
    await expect(copy).rejects.toThrow('was opened again meanwhile: repeat svc db copy')
    await takesWrites(from)
    expect((await planned(from, to)).target.state).toBe('unfinished')
  })

  it('keeps older versions out of the target, and finds what one has written', async () => {
    const [from, to] = [await migrated(), await emptyPlace(kind)]
    await leaveUnfinished(from, to)
    const place = placeOf(from, to)
    const seen = (version: string) => withStorage(place, (storage) => checkVersion(storage, version))
    await expect(seen(version)).rejects.toThrow('since the migration svc_copy')
    const written = (work: (db: AnyDb) => Promise<unknown>) =>
      withStorage(place, ({ write }) => write((tx) => work(tx as AnyDb)))
    await written((db) => db.insertInto('registrations').values(row).execute())
    await expect(copied(from, to)).rejects.toThrow(
      'The target has 1 rows of registrations instead of 0: another program wrote to it',
    )
    await takesWrites(from)
    await written((db) => db.deleteFrom('registrations').execute())
    await copied(from, to)
    await seen(version)
  })
})
