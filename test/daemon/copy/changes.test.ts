import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import type { CopyPass } from '../../../daemon/copy/pass.ts'
import { rowsOf } from '../../table-dump.ts'
import { emptyPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { placeWithRows } from '../backup/many-rows.ts'
import { copiedWhile, placeOf } from './copies.ts'

const many = 3000

const logsOf = async (place: Place): Promise<string[]> => {
  const rows = (await withStorage(place, rowsOf)).get('agent_logs')!
  return rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort()
}

describe.each(kinds)('a copy to %s', (kind) => {
  it('has what changed while it was under way, and unique values that went to other rows', async () => {
    const from = await placeWithRows('sqlite', many)
    const to = await emptyPlace(kind)
    const seen = new Set<CopyPass>()
    let changes = 0
    const summary = await copiedWhile(from, to, (database, pass, done) => {
      seen.add(pass)
      if (pass !== 'first' || done < 600) return
      changes += 1
      // The place of a row that is copied goes to one that is not: of the target both have it for a while.
      const move = database.prepare('update agent_logs set seq = ? where id = ?')
      if (changes === 1) {
        move.run(1_000_000, 'log-0')
        move.run(0, 'log-999')
      }
      if (changes === 3) {
        database.prepare("delete from agent_logs where id like 'log-10%'").run()
        database.prepare("update agent_logs set message = 'changed' where id like 'log-2%'").run()
        const add =
          database.prepare(`insert into agent_logs (id, device_id, org_id, timestamp, level, message, created_at, component, seq)
          select ?, device_id, org_id, timestamp, level, 'new', created_at, component, ? from agent_logs where id = 'log-1'`)
        for (let n = 0; n < 700; n++) add.run(`${n % 2 === 0 ? 'aaa' : 'zzz'}-${n}`, 2_000_000 + n)
      }
      // Two rows that are copied exchange their places.
      if (changes === 6) {
        move.run(3_000_000, 'log-2')
        move.run(2, 'log-998')
        move.run(998, 'log-2')
      }
    })
    expect([...seen]).toEqual(['first', 'last'])
    expect(changes).toBeGreaterThan(6)
    expect(summary.rewritten.rows).toBeGreaterThan(700)
    const logs = await logsOf(from)
    expect(logs.filter((text) => text.includes('"new"')).length).toBe(700)
    expect(await logsOf(placeOf(from, to))).toEqual(logs)
  })

  it('says which row it cannot store, and leaves the database open', async () => {
    const from = await placeWithRows('sqlite', 10)
    await withStorage(from, ({ write }) =>
      write((tx) => sql`update agent_logs set message = 'a' || char(0) where id = 'log-1'`.execute(tx)),
    )
    const copy = copiedWhile(from, await emptyPlace(kind), () => {})
    if (kind === 'sqlite') await copy
    else {
      await expect(copy).rejects.toThrow('A row of agent_logs has a NUL character in message')
      await withStorage(from, (storage) => storage.write((tx) => tx.deleteFrom('probes').execute()))
    }
  })
})
