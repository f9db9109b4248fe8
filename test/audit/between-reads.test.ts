import type { KyselyPlugin } from 'kysely'
import { expect, it } from 'vitest'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Storage } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { happen, partsOn } from './chains.ts'

/** Runs `work` after the given number of query results, before the caller receives the next one. */
function after(storage: Storage, answers: number, work: () => Promise<void>): Storage {
  let left = answers
  const plugin: KyselyPlugin = {
    transformQuery: ({ node }) => node,
    async transformResult({ result }) {
      if (left-- === 0) await work()
      return result
    },
  }
  return { ...storage, read: storage.read.withPlugin(plugin) }
}

inTurn((open) => {
  it.each([0, 5])(
    'entries recorded between two reads of a checkpoint are no fault: a chain of %d entries',
    async (before) => {
      const { storage, dataDir } = await open()
      let isReached = true
      let answers = 0
      for (; isReached; answers += 1) {
        isReached = false
        const org = newId()
        if (before > 0) await happen(storage, org, before)
        const watched = after(storage, answers, async () => {
          isReached = true
          await happen(storage, org, 3)
        })
        const parts = partsOn({ storage: watched, dataDir })
        const { checkpoint } = await takeCheckpoint(parts, org)
        expect({ answers, refused: parts.refused }).toEqual({ answers, refused: [] })
        expect([before, before + 3]).toContain(checkpoint.head.seq)
      }
      expect(answers).toBeGreaterThan(5)
    },
  )
})
