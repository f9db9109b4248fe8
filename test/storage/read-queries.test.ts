import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { classifyDatabaseError } from '../../src/storage/database-errors.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'

const limitMs = 300

const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => classifyDatabaseError(error),
  )

onEveryDatabase((_, open) => {
  const start = async (atOnce = 2): Promise<Storage> => {
    const { dataDir, databaseUrl, storage } = await open()
    await storage.write(async (tx) => {
      for (let from = 0; from < 3000; from += 500) {
        const rows = Array.from({ length: 500 }, (_, n) => ({ id: 2 + from + n, at: `at ${from + n}` }))
        await tx.insertInto('probes').values(rows).execute()
      }
    })
    const asked = await openStorage({
      dataDir,
      ...(databaseUrl !== undefined && { databaseUrl }),
      readQueries: { timeoutMs: limitMs, atOnce },
    })
    return asked
  }
  /** A scan of 9 million pairs that finds none. */
  const slow = ({ readQueries }: Storage) =>
    readQueries
      .selectFrom('probes as a')
      .innerJoin('probes as b', (join) => join.onTrue())
      .select((eb) => eb.fn.countAll<number>().as('n'))
      .where((eb) =>
        eb.or([
          eb(sql`a.at || b.at`, '=', 'none'),
          eb(
            sql`replace(b.at || a.at || b.at, 'a', 'b') || replace(a.at || b.at || a.at, 't', 'b')`,
            '=',
            'none',
          ),
        ]),
      )
      .execute()
  const quick = async ({ readQueries }: Storage) =>
    (await readQueries.selectFrom('probes').select('at').where('id', '=', 7).execute()).map(({ at }) => at)

  it('ends a query that takes too long, and runs the next on the same slot', async () => {
    const storage = await start(1)
    try {
      expect(await quick(storage)).toEqual(['at 5'])
      for (let round = 0; round < 3; round++) {
        const began = performance.now()
        expect(await failureOf(slow(storage))).toBe('too slow')
        expect(performance.now() - began).toBeLessThan(limitMs + 2500)
        expect(await quick(storage)).toEqual(['at 5'])
      }
    } finally {
      await storage.close()
    }
  })

  it('lets other reads and writes continue while all slots are taken', async () => {
    const storage = await start(2)
    try {
      await Promise.all([
        quick(storage),
        quick(storage),
        storage.heavy.selectFrom('probes').select('id').limit(1).execute(),
      ])
      const asked = Promise.all([slow, slow, slow, slow].map((one) => failureOf(one(storage))))
      const began = performance.now()
      await storage.write((tx) => tx.updateTable('probes').set({ at: 'now' }).where('id', '=', 1).execute())
      for (const db of [storage.read, storage.heavy]) {
        const rows = await db.selectFrom('probes').select('at').where('id', '=', 1).execute()
        expect(rows).toEqual([{ at: 'now' }])
      }
      expect(performance.now() - began).toBeLessThan(limitMs)
      expect(await asked).toEqual(['too slow', 'too slow', 'too slow', 'too slow'])
    } finally {
      await storage.close()
    }
  })

  it('does not limit heavy reads', async () => {
    const storage = await start()
    try {
      const pairs = storage.heavy
        .selectFrom('probes as a')
        .innerJoin('probes as b', (join) => join.onTrue())
        .select((eb) => eb.fn.countAll<number>().as('n'))
        .where(sql`a.id`, '<', 700)
        .where(sql`a.at || b.at || a.at || b.at || replace(a.at, 'a', 'b')`, '=', 'none')
      expect(await pairs.execute()).toEqual([{ n: 0 }])
    } finally {
      await storage.close()
    }
  })
})
