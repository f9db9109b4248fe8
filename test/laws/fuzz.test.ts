import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf, isMutation } from '../../src/core/endpoint.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, matrixOn, seed } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { recordsOf, userToken } from './fixture.ts'
import { requestTo } from './random-requests.ts'
import { faultOf } from './refusal.ts'
import { changed, type Dump, dump } from './tables.ts'
import { sendBytes } from './wire.ts'

const entries = entriesOf(api)
/** The endpoints of people and API keys, which get more runs. */
const rooms = ['/auth', '/users', '/roles', '/permissions', '/api-keys', '/enrollment-keys']
const ofPeopleAndKeys = entries.filter(({ entry }) =>
  rooms.some((room) => entry.path === room || entry.path.startsWith(`${room}/`)),
)
/** Runs per entry and kind of caller; at least 300 per caller for entries of people and keys. */
const runs = { ofPeopleAndKeys: depth(6, 16), ofOthers: depth(2, 8) }

onEveryDatabase((kind, open) => {
  let service: TestService
  let world: World
  let ids: string[]
  let key: string

  beforeAll(async () => {
    process.stdout.write(`fuzz on ${kind}: SEED=${seed}\n`)
    service = await startService(open)
    world = await buildWorld(service)
    const { bakery } = world.orgs
    ids = Object.values(await recordsOf(service, world.partners.acme, bakery))
    const client = service.client(world.tokens.system)
    key = (await client.call(api.apiKeys.create, { body: { orgId: bakery.id, name: 'fuzz', scopes: ['*'] } }))
      .key
  })
  afterAll(() => service.close())

  /** A new session each time, as a request may end the previous one. */
  const session = async (name: string): Promise<Record<string, string>> => {
    const token = await userToken(service, name, { kind: 'organization', orgId: world.orgs.bakery.id })
    return { authorization: `Bearer ${token}` }
  }
  const callers: [string, () => Promise<Record<string, string>>][] = [
    ['nobody', async () => ({})],
    ["a Viewer's token", () => session('bakery-viewer')],
    ['an API key', async () => ({ 'x-api-key': key })],
    ["an administrator's token", () => session('bakery-admin')],
  ]

  const fuzzed = matrixOn(kind, entries)
  describe.each(callers)('random requests with the credentials of %s', (_, credentials) => {
    it.each(fuzzed)('$name answers correctly, and a refusal changes nothing', async ({ name, entry }) => {
      let who = await credentials()
      let before = await stored()
      const property = fc.asyncProperty(
        requestTo(entry, ids, () => who),
        async ({ bytes, what }) => {
          const answer = await sendBytes(service.url, bytes)
          if (answer.status < 300) {
            if (!isMutation(entry)) return
            who = await credentials()
            before = await stored()
            return
          }
          const fault = answer.status === entry.status ? undefined : faultOf(answer)
          expect([fault, what]).toEqual([undefined, what])
          expect([changed(before, await stored()), what]).toEqual([[], what])
        },
      )
      const own = seed + entries.findIndex((one) => one.name === name)
      const isFirst = ofPeopleAndKeys.some((one) => one.name === name)
      await fc.assert(property, { seed: own, numRuns: isFirst ? runs.ofPeopleAndKeys : runs.ofOthers })
    })
  })

  it('the service still works after the random requests', async () => {
    const client = service.client(world.tokens.system)
    expect(await client.call(api.auth.me)).toMatchObject({ scope: 'system' })
  })

  /** Without counters of key uses and wrong passwords, and without the short-lived readers of chains. */
  async function stored(): Promise<Dump> {
    const all = await dump(service.storage)
    all.delete('api_key_buckets')
    all.delete('audit_readings')
    const counts = /"(last_used_at|usage_count|failed_logins|locked_until)":("[^"]*"|\w+),?/g
    for (const table of ['api_keys', 'users'])
      all.set(
        table,
        (all.get(table) ?? []).map((row) => row.replace(counts, '')),
      )
    return all
  }
})

describe('the fuzzed endpoints', () => {
  it('are all endpoints, with enough runs for those of people and API keys', () => {
    expect(entries.length).toBeGreaterThan(200)
    expect(ofPeopleAndKeys.length).toBeGreaterThan(40)
    expect(ofPeopleAndKeys.length * runs.ofPeopleAndKeys).toBeGreaterThanOrEqual(300)
  })
})
