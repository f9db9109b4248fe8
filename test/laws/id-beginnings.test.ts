import { expect, it } from 'vitest'
import { fetchAllRows } from '../../src/cli/pages.ts'
import { lookups, resolveId } from '../../src/cli/resolve.ts'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { idBeginning } from '../../src/core/ids.ts'
import type { Resource } from '../../src/core/schema.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { recordsOf } from './fixture.ts'

const kinds = Object.keys(lookups) as Resource[]
const listOf = (kind: Resource): Promise<Endpoint> => lookups[kind]!.list()

it('the beginning of an id is eight digits or more, as an id is written', () => {
  const id = '01a20c0e-1234-7abc-8def-0123456789ab'
  const taken = Array.from(id, (_, at) => id.slice(0, at)).filter((start) => idBeginning.test(start))
  expect(taken).toEqual(Array.from({ length: 28 }, (_, n) => id.slice(0, n + 8)))
  for (const wrong of ['01a20c0e1', '01a20c0e--', '01a20c0e-12345', `${id}0`, '01a20c0g', '%1a20c0e'])
    expect([wrong, idBeginning.test(wrong)]).toEqual([wrong, false])
})

onEveryDatabase((_, open) => {
  it('finds a record within the scope of the caller and nowhere else, whatever its kind', async () => {
    const service = await startService(open)
    const { orgs, partners, tokens } = await buildWorld(service)
    const own = await recordsOf(service, partners.acme, orgs.bakery)
    const acme = service.client(tokens.acme)
    const globex = service.client(tokens.globex)
    const system = service.client(tokens.system)
    const ofSystem: Resource[] = ['partner', 'agent_rollout']
    const callerOf = (kind: Resource) => (ofSystem.includes(kind) ? system : acme)
    for (const kind of kinds) {
      const id = own[kind]
      const start = `${id.slice(0, 30)}…`
      const within = { orgId: orgs.bakery.id }
      expect([kind, await resolveId(callerOf(kind), kind, start, within)]).toEqual([kind, id])
      const stranger = resolveId(globex, kind, start).catch((error: Error) => error.message)
      expect([kind, await stranger]).toEqual([kind, expect.not.stringContaining(id)])
      if (!lookups[kind]!.narrow) continue
      const entry = await listOf(kind)
      const query = {
        idPrefix: id.slice(0, 8).toUpperCase(),
        ...(kind === 'user' && { orgId: orgs.bakery.id }),
      }
      const found: string[] = []
      for await (const row of fetchAllRows(acme, entry, query)) found.push((row as { id: string }).id)
      expect([kind, found]).toEqual([kind, expect.arrayContaining([id])])
      expect(found.every((one) => one.startsWith(id.slice(0, 8)))).toBe(true)
      await expect(acme.request(entry, { query: { idPrefix: "0' or 1=1" } })).rejects.toMatchObject({
        status: 400,
      })
    }
  })
})
