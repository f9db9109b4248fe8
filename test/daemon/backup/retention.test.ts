import { readdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { archiveName } from '../../../daemon/backup/archive-name.ts'
import { storeAt } from '../../../daemon/backup/open-store.ts'
import { prune } from '../../../daemon/backup/retention.ts'
import { recordBackup } from '../../../daemon/backup/runs.ts'
import { addSeconds } from '../../../src/core/time.ts'
import { onEveryDatabase, temporaryFolder } from '../../databases.ts'
import { backupOf, withStorage } from './filled.ts'

const day = 86_400
const now = '2026-03-31T00:00:00.000Z'

onEveryDatabase((_, open) => {
  it('removes own archives by number and age, never the newest or what others put there', async () => {
    const { dataDir, databaseUrl } = await open()
    const place = { dataDir, databaseUrl }
    const folder = await temporaryFolder()
    const store = storeAt(folder)
    const own: string[] = []
    for (const age of [40, 30, 20, 10, 0]) {
      const madeAt = addSeconds(now, -age * day)
      const name = archiveName(madeAt, false)
      await writeFile(join(folder, name), `archive of ${age}`)
      const bytes = `archive of ${age}`.length
      await recordBackup(place, { place: store.placeOf(name), madeAt, bytes, durationMs: 1 })
      own.push(name)
    }
    const foreign = [archiveName(addSeconds(now, -50 * day), false), archiveName(now, true), 'notes.txt']
    for (const name of foreign) await writeFile(join(folder, name), 'of somebody else')
    // Somebody put another file in the place of one.
    await writeFile(join(folder, own[1]!), 'of somebody else')

    expect(await prune(place, store, { keepDays: 15 }, now)).toEqual([
      join(folder, own[2]!),
      join(folder, own[0]!),
    ])
    expect(await prune(place, store, { keep: 1 }, now)).toEqual([join(folder, own[3]!)])
    expect(await prune(place, store, { keep: 1, keepDays: 1 }, addSeconds(now, 400 * day))).toEqual([])
    expect((await readdir(folder)).sort()).toEqual([...foreign, own[1]!, own[4]!].sort())
  })

  it('comes with a backup that names it, and knows only archives of this database', async () => {
    const first = await open()
    const second = await open()
    const folder = await temporaryFolder()
    const foreign = join(folder, 'svc-20200101T000000Z-0.1.0.backup')
    await rename((await backupOf(second, { out: folder })).file, foreign)
    const older = await backupOf(first, { out: folder, keep: 1 })
    const newer = await backupOf(first, { out: folder, keep: 1 })
    expect(newer.removed).toEqual([older.file])
    expect((await readdir(folder)).map((name) => join(folder, name)).sort()).toEqual([foreign, newer.file])
  })

  it('remembers the newest 2000 archives', async () => {
    const { dataDir, databaseUrl } = await open()
    const place = { dataDir, databaseUrl }
    await withStorage(place, async (storage) => {
      const rows = Array.from({ length: 2100 }, (_, n) => ({
        place: `/backups/${n}`,
        made_at: addSeconds(now, -n),
        bytes: 1,
      }))
      for (let at = 0; at < rows.length; at += 300)
        await storage.write((tx) =>
          tx
            .insertInto('backups')
            .values(rows.slice(at, at + 300))
            .execute(),
        )
    })
    await recordBackup(place, { place: '/backups/new', madeAt: addSeconds(now, 1), bytes: 1, durationMs: 1 })
    const left = await withStorage(place, ({ read }) =>
      read.selectFrom('backups').select('place').orderBy('made_at', 'desc').execute(),
    )
    expect([left.length, left[0], left.at(-1)]).toEqual([
      2000,
      { place: '/backups/new' },
      { place: '/backups/1998' },
    ])
  })
})
