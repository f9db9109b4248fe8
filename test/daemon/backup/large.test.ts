import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../databases.ts'
import { isSoak, isTried } from '../../depth.ts'
import { until } from '../process.ts'
import { SvcProcess, svc } from './binary.ts'
import { emptyPlace, kinds, withStorage } from './filled.ts'
import { placeWithRows } from './many-rows.ts'

const patience = 240_000
const rows = 300_000
/** The rows take 170 MB more; a garbage collector varies by less. */
const maxKiB = 110 * 1024

const logsIn = async (place: Parameters<typeof withStorage>[0]): Promise<number> => {
  const { total } = await withStorage(place, ({ read }) =>
    read
      .selectFrom('agent_logs')
      .select(({ fn }) => fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow(),
  )
  return total
}

/** Of Postgres in the soak: it takes a minute. */
const tried = kinds.filter((kind) => isTried(kind, 1, 2))

describe.each(tried)('300,000 rows of %s', (kind) => {
  it('are backed up and restored in the memory that a tenth of them takes', {
    timeout: patience,
  }, async () => {
    const folder = await temporaryFolder()
    const trip = async (count: number) => {
      const place = await placeWithRows(kind, count)
      const file = join(folder, `${count}.backup`)
      const backup = await svc(['db', 'backup', '--out', file, '--json'], place)
      expect(backup).toMatchObject({ code: 0, stderr: '' })
      const target = await emptyPlace(kind)
      const restore = await svc(['db', 'restore', file, '--json'], target)
      expect(restore).toMatchObject({ code: 0, stderr: '' })
      expect(await logsIn(target)).toBe(await logsIn(place))
      return { backup: backup.maxRss, restore: restore.maxRss }
    }
    const few = await trip(rows / 10)
    const many = await trip(rows)
    expect(few.backup).toBeGreaterThan(10_000)
    expect(many.backup - few.backup).toBeLessThan(maxKiB)
    expect(many.restore - few.restore).toBeLessThan(maxKiB)
  })

  it('are not there in part when the backup was killed', { timeout: patience }, async () => {
    const place = await placeWithRows(kind, rows)
    const folder = await temporaryFolder()
    const file = join(folder, 'a.backup')
    const killed = new SvcProcess(['db', 'backup', '--out', file], place)
    const draft = async () => (await readdir(folder)).find((name) => name.endsWith('.part'))
    await until(async () => {
      const name = await draft()
      return name !== undefined && (await stat(join(folder, name))).size > 100_000
    }, 60_000)
    expect(killed.running).toBe(true)
    killed.kill()
    expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' })
    expect((await readdir(folder)).filter((name) => !name.endsWith('.part'))).toEqual([])
    expect(await svc(['db', 'backup', '--out', file], place)).toMatchObject({ code: 0 })
    const { code, stderr } = await svc(['db', 'backup', '--out', file], place)
    expect([code, stderr]).toEqual([1, expect.stringMatching(/a.backup exists already/)])
  })
})

/** Of Postgres in each run: fewer rows, which are longer. */
it.runIf(!isSoak)(
  'a backup of Postgres takes no more memory for ten times the rows',
  {
    timeout: patience,
  },
  async () => {
    const folder = await temporaryFolder()
    const memory = async (count: number) => {
      const file = join(folder, `${count}.backup`)
      const place = await placeWithRows('postgres', count, 80)
      const { code, stdout, maxRss } = await svc(['db', 'backup', '--out', file, '--json'], place)
      expect([code, JSON.parse(stdout).rows > count]).toEqual([0, true])
      return maxRss
    }
    const few = await memory(4000)
    expect(few).toBeGreaterThan(10_000)
    // The rows of the second have 190 MB.
    expect((await memory(40_000)) - few).toBeLessThan(maxKiB)
  },
)
