import { expect, it } from 'vitest'
import { insertLogs } from '../../src/logs/insert.ts'
import { onEveryDatabase } from '../databases.ts'

onEveryDatabase(
  (_, open) => {
    it('a deadlock is tried again, and no entry is lost for it', async () => {
      const { storage } = await open()
      let attempts = 0
      const insert = async (some: readonly string[]) => {
        attempts += 1
        if (attempts === 1) throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
        return some
      }
      const stored = await storage.write((tx) => insertLogs(tx, ['a'], insert, (log) => `${log} is lost`))
      expect(stored).toEqual([['a']])
    })
  },
  ['postgres'],
)
