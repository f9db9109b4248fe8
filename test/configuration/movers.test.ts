import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { addPartnerUser } from '../world.ts'
import type { Document } from './fixture.ts'
import { startWithHistory } from './history-fixture.ts'

onEveryDatabase((_, open) => {
  const start = async () => {
    const stage = await startWithHistory(open)
    const { acme, world } = stage
    /** What an apply of the plan is told that it was refused for. */
    const refusalOf = async (
      document: Document,
      { version, plannedAt }: { version: string; plannedAt: string },
      by = acme,
    ) => {
      const body = { document, version, plannedAt }
      const failure = await by.client.call(api.configuration.apply, { body }).catch((error: unknown) => error)
      expect(failure).toMatchObject({ status: 409 })
      return String((failure as Error).message).replace(/^.*plan again:? ?/, '')
    }
    return { ...stage, refusalOf, bakeryId: world.orgs.bakery.id }
  }

  describe('an apply of an outdated plan', () => {
    it('names who has moved an object, and not who was refused after that', async () => {
      const { service, world, acme, bakeryId, refusalOf } = await start()
      const site = { org: 'bakery', name: 'Annex' }
      await acme.apply({ sites: [site] })
      const files = { sites: [{ ...site, timezone: 'Europe/Paris' }] }
      const plan = await acme.plan(files)
      const { data } = await acme.client.call(api.sites.list, { query: { orgId: bakeryId } })
      const params = { id: data.find(({ name }) => name === 'Annex')!.id }
      const change = (token: string, timezone: string) =>
        service.client(token).call(api.sites.update, { params, body: { timezone } })
      await change(world.tokens.acme, 'Asia/Tokyo')
      await expect(change(world.tokens.bakeryViewer, 'Asia/Seoul')).rejects.toMatchObject({ status: 403 })
      expect(await refusalOf(files, plan)).toMatch(/^sites "Annex" \(by acme-admin@example\.com at \S+ audit/)
    })

    it('names the keys that have moved, and no others', async () => {
      const { service, world, acme, bakery, refusalOf } = await start()
      const { apiKeys, enrollmentKeys } = (await bakery.exported()).document
      const keys = { apiKeys: apiKeys!, enrollmentKeys: enrollmentKeys! }
      await bakery.apply(keys, { adopt: true })
      const files = { ...keys, sites: [{ name: 'Annex' }] }
      const plan = await bakery.plan(files)
      const { data } = await bakery.client.call(api.sites.list, {})
      const [{ id } = { id: '' }] = data
      await acme.client.call(api.sites.update, { params: { id }, body: { timezone: 'Asia/Tokyo' } })
      const found = await refusalOf(files, plan, bakery)
      expect(found).toMatch(/^sites "[^"]*" \(by acme-admin@example\.com at [^)]*\)$/)
      const again = await bakery.plan(files)
      const two = service.client(await addPartnerUser(service, 'two', world.partners.acme, 'all'))
      const [key] = (await bakery.client.call(api.apiKeys.list, {})).data
      await two.call(api.apiKeys.update, { params: { id: key!.id }, body: { rateLimit: 5 } })
      expect(await refusalOf(files, again, bakery)).toMatch(
        new RegExp(`^api_key\\.update "${key!.name}" \\(by two@example\\.com at [^)]*\\)$`),
      )
    })

    it('names who has just applied something else, and nobody of another tenant', async () => {
      const { service, world, by, acme, refusalOf } = await start()
      const two = by(await addPartnerUser(service, 'two', world.partners.acme, 'all'))
      const globex = by(world.tokens.globex)
      const keep = { org: 'bakery', name: 'Keep' }
      const old = { org: 'bakery', name: 'Old' }
      await acme.apply({ sites: [keep, old] })
      const { id: orgId } = world.orgs.harbor
      const theirs = await globex.client.call(api.sites.create, { body: { orgId, name: 'Theirs' } })
      const fresh = { org: 'bakery', name: 'New' }
      const changes = [
        { sites: [{ ...keep, timezone: 'Asia/Tokyo' }, old], prune: false, said: 'sites "Keep" (by two@' },
        { sites: [keep, old, fresh], prune: false, said: 'sites "New" (by two@' },
        { sites: [keep, fresh], prune: true, said: 'site.delete "Old" (by two@' },
      ]
      for (const { sites, prune, said } of changes) {
        const plan = await two.plan({ sites }, { prune })
        await globex.client.call(api.sites.update, { params: { id: theirs.id }, body: { name: 'Moved' } })
        await two.apply({ sites }, { prune }, plan.version)
        expect(await refusalOf({ sites }, plan)).toContain(said)
      }
      const plan = await two.plan({ sites: [keep, old] })
      await globex.client.call(api.sites.remove, { params: { id: theirs.id } })
      await two.apply({ sites: [keep, old] }, {}, plan.version)
      expect(await refusalOf({ sites: [keep, old] }, plan)).not.toContain('site.delete')
    })
  })
})
