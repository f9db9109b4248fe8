import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { onEveryDatabase } from '../databases.ts'
import { matrixOn } from '../depth.ts'
import { startService } from '../harness.ts'
import { callAsStrangers, concerns } from './cross-tenant-calls.ts'
import { inputsOf } from './fields.ts'
import { buildStage } from './fixture.ts'
import { leakyContract, leakyService } from './leaky-service.ts'
import { Line } from './wire.ts'

/** Enough for thousands of calls on a busy machine. */
const patience = 300_000

onEveryDatabase((kind, open) => {
  const entries = matrixOn(kind, entriesOf(api))

  describe('a stranger', { timeout: patience }, () => {
    it('gets nothing of another tenant from any endpoint, and changes nothing', async () => {
      const service = await startService(open)
      const stage = await buildStage(service)
      const line = new Line(service.url)
      const { breaches, called, named, calls } = await callAsStrangers(stage, entries, line)
      await line.close()
      expect(breaches).toEqual([])

      // The matrix is complete: every entry was called by all relevant strangers, with an ID in every place.
      for (const stranger of stage.strangers) {
        const concerned = entries.filter(({ entry }) => concerns(stranger, entry))
        expect([stranger.name, [...(called.get(stranger.name) ?? [])].sort()]).toEqual([
          stranger.name,
          concerned.map(({ name }) => name).sort(),
        ])
      }
      const places = entries.flatMap(({ name, entry }) =>
        inputsOf(entry)
          .filter(({ resource }) => resource !== undefined)
          .map(({ part, path }) => `${name} ${part}.${path.join('.')}`),
      )
      expect([...named].sort()).toEqual(places.sort())
      expect(calls).toBeGreaterThan(entries.length * (stage.strangers.length - 1))
    })

    it('is detected in a service without tenant isolation', async () => {
      const service = await startService(open)
      const stage = await buildStage(service)
      const house = await leakyService(service)
      const line = new Line(house.url)
      const { breaches } = await callAsStrangers(stage, entriesOf(leakyContract), line)
      await line.close()
      await house.close()
      const seen = (entry: string, what: RegExp) =>
        breaches.some((breach) => breach.entry === entry && what.test(breach.what))
      expect(seen('house.list', /^shows .*bakery-pc/)).toBe(true)
      expect(seen('house.show', /^shows .*bakery-pc/)).toBe(true)
      expect(seen('house.rename', /^answered 200/)).toBe(true)
      expect(seen('house.rename', /^devices \+ .*mine now/s)).toBe(true)
      expect(seen('house.wipe', /^devices [+-] /)).toBe(true)
      expect(seen('house.hint', /^tells that the record exists/)).toBe(true)
      expect(seen('house.gossip', /^shows bakery-pc/)).toBe(true)
      expect(breaches.filter(({ entry }) => entry === 'house.fair')).toEqual([])
    })
  })
})
