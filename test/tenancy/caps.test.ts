import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { systemToken } from '../world.ts'

onEveryDatabase((_, open) => {
  it('a partner gets no more organizations than its cap, also when many are created at once', async () => {
    const service = await startService(open)
    const client = service.client(await systemToken(service))
    const partner = await client.call(api.partners.create, {
      body: { name: 'Acme', slug: 'acme', maxOrganizations: 3 },
    })
    const create = (n: number) =>
      client.call(api.orgs.create, { body: { partnerId: partner.id, name: `Org ${n}`, slug: `org-${n}` } })
    const results = await Promise.allSettled(Array.from({ length: 12 }, (_, n) => create(n)))
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
    for (const one of results) {
      if (one.status === 'fulfilled') continue
      expect(one.reason).toMatchObject({ status: 403, code: 'organization_limit_reached' })
    }
  })
})
