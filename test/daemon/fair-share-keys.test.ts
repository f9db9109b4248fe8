import { expect, it } from 'vitest'
import { agentFairShareKey, FairShareKeys } from '../../daemon/fair-share-keys.ts'
import { organizationScope, type Scope } from '../../src/core/scope.ts'
import type { ApiKeyCaller } from '../../src/handler.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

it('a partner, its organizations and their agents share one budget', async () => {
  const service = await startService(() => openMigrated('sqlite'))
  const { orgs, partners } = await buildWorld(service)
  const keys = new FairShareKeys(service.storage)
  const groupOf = async (scope: Scope) => {
    const caller = { kind: 'api_key', id: 'one', scope } as unknown as ApiKeyCaller
    return (await keys.of(caller, '::1'))[0]
  }
  const own = await groupOf({ kind: 'partner', partnerId: partners.acme, orgs: 'all' })
  for (const org of [orgs.bakery, orgs.garage, orgs.bakery]) {
    expect(await groupOf(organizationScope(org.id))).toBe(own)
    expect(agentFairShareKey({ partnerId: partners.acme, orgId: org.id, deviceId: 'one' })[0]).toBe(own)
  }
  expect(await groupOf(organizationScope(orgs.harbor.id))).not.toBe(own)
})
