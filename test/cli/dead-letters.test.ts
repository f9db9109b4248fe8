import { afterAll, beforeAll, expect, it } from 'vitest'
import { sealPending } from '../../src/audit/outbox.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { failWrites } from '../laws/failing-writes.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let service: TestService
let world: World

beforeAll(async () => {
  service = await serviceOn(await openMigrated('sqlite'))
  world = await buildWorld(service)
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) =>
  home.run(['dead-letters', ...args], { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.system } })

it('svc dead-letters lists, shows, retries and deletes entries that could not be written', async () => {
  const { storage } = service
  const cure = await failWrites(storage, 'insert', 'audit_logs', `new.action = 'site.create'`)
  const headers = { authorization: `Bearer ${world.tokens.system}`, 'content-type': 'application/json' }
  const body = JSON.stringify({ orgId: world.orgs.bakery.id, name: 'second' })
  await fetch(`${service.url}/api/v1/orgs/sites`, { method: 'POST', headers, body })
  await storage.write((tx) => tx.insertInto('outbox').values({ chain: 'nowhere', entry: '{"half' }).execute())
  await sealPending(storage)
  await cure()
  const [junk, entry] = (await svc('-q')).stdout.trim().split('\n') as [string, string]
  expect((await svc()).stdout).toMatch(/^NUMBER +SOURCE +ORG ID +BYTES/)
  const said = await svc('show', entry, '--json')
  expect(said).toMatchObject({ code: 0, stderr: '' })
  const shown = JSON.parse(said.stdout) as { entry: string }
  expect(JSON.parse(shown.entry)).toMatchObject({ action: 'site.create' })
  expect((await svc('retry', entry)).stdout).toContain('Recorded at the end of its chain')
  const refused = await svc('retry', junk, '--json')
  expect([refused.code, failureOf(refused).code]).toEqual([6, 'conflict'])
  expect((await svc('delete', junk)).code).toBe(2)
  expect((await svc('delete', junk, '--yes')).stdout).toBe('Deleted\n')
  expect((await svc('show', junk)).code).toBe(3)
  expect((await svc('-q')).stdout).toBe('')
})
