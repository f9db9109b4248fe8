import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isMoved } from '../../../daemon/backup/contents.ts'
import { seed } from '../../depth.ts'
import { testSecrets } from '../../harness.ts'
import { rowsOf } from '../../table-dump.ts'
import { SvcProcess, svc } from '../backup/binary.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { placeWithRows } from '../backup/many-rows.ts'
import { placeOf } from './copies.ts'

const kills = 20

const told = (to: Place): { args: string[]; env: Record<string, string> } =>
  to.databaseUrl === undefined
    ? { args: ['db', 'copy', '--to', to.dataDir, '--json'], env: testSecrets }
    : { args: ['db', 'copy', '--json'], env: { ...testSecrets, TARGET_DATABASE_URL: to.databaseUrl } }

const isWritable = (place: Place): Promise<boolean> =>
  withStorage(place, (storage) =>
    storage
      .write((tx) => tx.updateTable('probes').set({ at: '' }).execute())
      .then(
        () => true,
        () => false,
      ),
  )

async function allRows(place: Place): Promise<string[]> {
  const rows = await withStorage(place, rowsOf)
  const moved = [...rows].filter(([table]) => isMoved(table))
  const texts = ([table, all]: (typeof moved)[number]) =>
    all.map((row) => table + JSON.stringify(Object.entries(row).sort()))
  return moved.flatMap(texts).sort()
}

describe.each(kinds)('a copy of %s', (kind) => {
  it(`is complete after ${kills} kills`, { timeout: 600_000 }, async () => {
    const from = await placeWithRows(kind, 12_000)
    const empty = () => emptyPlace(kind === 'sqlite' ? 'postgres' : 'sqlite')
    let to = await empty()
    let finished = 0
    const moments = fc.sample(fc.integer({ min: 200, max: 6000 }), { numRuns: 4 * kills, seed })
    let killed = 0
    for (const moment of moments) {
      if (killed === kills) break
      const { args, env } = told(to)
      const copy = new SvcProcess(args, from, env)
      const timer = setTimeout(() => copy.kill(), moment)
      const { code, signal, stderr } = await copy.ended
      clearTimeout(timer)
      if (signal === 'SIGKILL') {
        killed += 1
        if (await isWritable(from)) continue
        // Between its last two steps, or after them: the copy is what counts, and the next one finishes it.
        const again = await svc(args, from, env)
        if (again.code !== 0) expect(again.stderr).toMatch(/This database was moved to/)
      } else expect([code, stderr]).toEqual([0, ''])
      finished += 1
      expect(await isWritable(from)).toBe(false)
      expect(await allRows(placeOf(from, to))).toEqual(await allRows(from))
      expect((await svc(['db', 'copy', '--reopen', '--yes', '--json'], from)).code).toBe(0)
      to = await empty()
    }
    expect(killed).toBe(kills)
    const { args, env } = told(to)
    const { code, stderr, stdout } = await svc(args, from, env)
    expect([code, stderr]).toEqual([0, ''])
    expect(JSON.parse(stdout).rows).toBeGreaterThan(12_000)
    expect(await allRows(placeOf(from, to))).toEqual(await allRows(from))
    expect((await svc(['db', 'status'], placeOf(from, to))).code).toBe(0)
    expect(finished).toBeLessThan(3 * kills)
  })
})
