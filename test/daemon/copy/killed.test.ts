import { describe, expect, it } from 'vitest'
import { isMoved } from '../../../daemon/backup/contents.ts'
import { depth } from '../../depth.ts'
import { rowsOf } from '../../table-dump.ts'
import { svc } from '../backup/binary.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { placeWithRows } from '../backup/many-rows.ts'
import { placeOf } from './copies.ts'
import { copiedDespite } from './killing.ts'

const kills = depth(2, 20)

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
    const { to, ended } = await copiedDespite({ from, empty, kills, longest: 6000, contentOf: allRows })
    expect(JSON.parse(ended.stdout).rows).toBeGreaterThan(12_000)
    expect((await svc(['db', 'status'], placeOf(from, to))).code).toBe(0)
  })
})
