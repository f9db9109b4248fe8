import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { type Endpoint, isMutation } from '../../src/core/endpoint.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { isSoak, matrixOn } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { toWire } from './calls.ts'
import { called, statusOf } from './fields.ts'
import { mutationsOf } from './mutations.ts'
import { faultOf } from './refusal.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { changed, dump } from './tables.ts'
import { Line } from './wire.ts'

const entries = called(api)

/** In `npm test` each endpoint gets a third of its mutations, and its neighbor the next third. */
const thirdOf = (entry: Endpoint) => {
  const turn = entries.findIndex((one) => one.entry === entry)
  return (_: unknown, index: number) => isSoak || (index + turn) % 3 === 0
}

onEveryDatabase((kind, open) => {
  let service: TestService
  let hand: ScenarioTools
  let line: Line

  beforeAll(async () => {
    // The test takes minutes, in which its devices are silent.
    service = await startService(open, { env: { OFFLINE_AFTER_SECONDS: '86400' } })
    hand = scenarioTools(service, await buildWorld(service), systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  describe('bad input', () => {
    it.each(matrixOn(kind, entries))(
      'at $name is refused in the standard format, and changes nothing',
      async ({ name, entry }) => {
        const scenario = await scenarioOf(name, entry, hand)
        const mutations = mutationsOf(entry, scenario)
        expect(mutations.length).toBeGreaterThan(5)
        const refused = mutations.filter(({ outcome }) => outcome === 'refused').filter(thirdOf(entry))
        const faults: string[] = []
        const before = await dump(service.storage)
        for (const { what, wire, path } of refused) {
          const fault = faultOf(await line.send(wire), path === undefined ? {} : { path })
          if (fault) faults.push(`${what}: ${fault}`)
        }
        expect(faults).toEqual([])
        expect(changed(before, await dump(service.storage))).toEqual([])

        const undecided = mutations.filter(({ outcome }) => outcome === 'either').filter(thirdOf(entry))
        for (const { what, wire } of undecided) {
          const answer = await line.send(wire)
          const fault = answer.status < 300 ? undefined : faultOf(answer)
          if (fault) faults.push(`${what}: ${fault}`)
        }
        expect(faults).toEqual([])
      },
    )

    it('leaves the service working', async () => {
      for (const { name, entry } of matrixOn(kind, entries)) {
        const scenario = await scenarioOf(name, entry, hand)
        const { status, text } = await line.send(toWire(entry, scenario.input, scenario.token))
        expect([name, status, text]).toEqual([name, statusOf(entry), expect.any(String)])
        expect(isMutation(entry) || entry.bytes || status === 200).toBe(true)
      }
    })
  })
})
