import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { newId } from '../../src/core/new-id.ts'
import { permissions } from '../../src/core/permissions.ts'
import { systemScope } from '../../src/core/scope.ts'
import { outcomeOfResponse, type PendingDelivery } from '../../src/webhooks/deliveries/rules.ts'
import { getWebhook } from '../../src/webhooks/store.ts'
import { recordOutcomes } from '../../src/webhooks/worker/outcomes.ts'
import { inTurn } from '../databases.ts'
import { testSecrets } from '../harness.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import type { Document } from './fixture.ts'
import { hook, startWithHistory } from './history-fixture.ts'

const before = (time: string) => new Date(Date.parse(time) - 1).toISOString()

inTurn((open) => {
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
      return String((failure as Error).message).replace(/^.*plan again(\. Changed since: )?/, '')
    }
    /** Who set each field that differs from the files. */
    const drift = async (document: Document) => {
      const body = { document, culprits: true }
      const { changes } = await acme.client.call(api.configuration.plan, { body })
      return changes.flatMap(({ culprits }) => culprits!.map(({ field, by, action }) => [field, by, action]))
    }
    return { ...stage, refusalOf, drift, bakeryId: world.orgs.bakery.id }
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

    it('names whoever was faster of two at once', async () => {
      const { service, world, by, acme } = await start()
      const two = by(await addPartnerUser(service, 'two', world.partners.acme, 'all'))
      const keep = { org: 'bakery', name: 'Keep' }
      await acme.apply({ sites: [keep, { org: 'bakery', name: 'Old' }] })
      const changes = [
        { sites: [keep], prune: true },
        { sites: [keep, { org: 'bakery', name: 'New' }], prune: false },
        { sites: [{ ...keep, timezone: 'Asia/Tokyo' }], prune: false },
      ]
      for (const { sites, prune } of changes) {
        const plans = await Promise.all([acme, two].map((one) => one.plan({ sites }, { prune })))
        const applies = [acme, two].map(({ client }, at) => {
          const { version, plannedAt } = plans[at]!
          const body = { document: { sites }, prune, version, plannedAt: before(plannedAt) }
          return client.call(api.configuration.apply, { body })
        })
        const outcomes = await Promise.allSettled(applies)
        const lost = outcomes.findIndex(({ status }) => status === 'rejected')
        const winner = ['two', 'acme-admin'][lost]
        const failure = expect.objectContaining({
          message: expect.stringContaining(`(by ${winner}@example.com at`),
        })
        expect(outcomes[lost]).toMatchObject({ reason: failure })
      }
    })
  })

  describe('a difference', () => {
    it('names whoever changed a part of a retention or a retry policy, and not who set what there was', async () => {
      const { service, world, acme, bakeryId, drift } = await start()
      const member = async (name: string) =>
        service.client(await addPartnerUser(service, name, world.partners.acme, 'all'))
      const [one, two] = [await member('one'), await member('two')]
      const auditRetention = { retentionDays: 365, archiveToS3: false }
      const organizations = [{ slug: 'bakery', name: 'bakery', auditRetention }]
      await acme.apply({ organizations }, { adopt: true })
      const files = { organizations, webhooks: [{ ...hook, retryPolicy: { maxRetries: 3 } }] }
      await acme.apply({ webhooks: files.webhooks })
      const query = { orgId: bakeryId }
      await one.call(api.auditRetention.change, { query, body: { retentionDays: 700 } })
      await two.call(api.auditRetention.change, { query, body: { archiveToS3: false } })
      const { data } = await acme.client.call(api.webhooks.list, {})
      const params = { id: data.find(({ name }) => name === hook.name)!.id }
      for (const by of [one, two])
        await by.call(api.webhooks.setRetryPolicy, { params, body: { maxRetries: 9 } })
      const days = [{ ...organizations[0], auditRetention: { retentionDays: 365 } }]
      expect(await drift({ ...files, organizations: days })).toEqual([
        ['auditRetention', 'one@example.com', 'audit.retention.update'],
        ['retryPolicy', 'one@example.com', 'webhook.retry_policy.update'],
      ])
    })

    it('names the service where it has failed a webhook, and so does an apply', async () => {
      const { service, acme, drift, refusalOf } = await start()
      const files = { webhooks: [{ ...hook, status: 'active' }] }
      await acme.apply(files)
      const plan = await acme.plan(files)
      const { data } = await acme.client.call(api.webhooks.list, {})
      const { id } = data.find(({ name }) => name === hook.name)!
      const { storage } = service
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      const now = new Date(Date.parse(plan.plannedAt) + 1000).toISOString()
      await storage.write(async (tx) => {
        const { webhook } = await getWebhook(tx, cipher, systemScope, id)
        // Of a delivery that there is not: what it does to the webhook is all that counts.
        const delivery = { id: newId(), webhookId: id, attempt: 0 } as PendingDelivery
        const reply = { status: 410, headers: {}, body: Buffer.from(''), isWhole: true, milliseconds: 1 }
        const outcome = outcomeOfResponse(delivery, reply, { policy: null, now })
        await recordOutcomes(tx, [{ webhook, delivery, outcome }], now)
      })
      expect(await drift(files)).toEqual([['status', 'System', 'webhook.fail']])
      expect(await refusalOf(files, plan)).toMatch(/^webhooks "Tickets" \(by System at \S+ audit entry/)
    })

    it('is a section to whoever may not read the audit log, where nothing in it says when', async () => {
      const { service, world, by, bakery, refusalOf } = await start()
      const held = permissions.filter((one) => !one.startsWith('audit'))
      const role = await addRole(service, { partnerId: world.partners.acme }, 'No audit', held)
      const operator = by(await addPartnerUser(service, 'operator', world.partners.acme, 'all', role))
      const kept = { org: 'bakery', name: 'Kept' }
      await operator.apply({ sites: [kept, { ...kept, name: 'Deleted' }] })
      const files = { sites: [kept, { ...kept, name: 'Deleted' }, { ...kept, name: 'New' }] }
      const plan = await operator.plan(files)
      const { data } = await bakery.client.call(api.sites.list, {})
      const { id } = data.find(({ name }) => name === 'Deleted')!
      await bakery.client.call(api.sites.remove, { params: { id } })
      expect(await refusalOf(files, plan, operator)).toBe('sites')
    })

    it('is what ends, where that alone has changed', async () => {
      const { acme, service, world, refusalOf } = await start()
      const { id: orgId } = world.orgs.bakery
      const maker = service.client(await addOrgUser(service, 'maker', orgId))
      const member = { org: 'bakery', email: 'maker@example.com', name: 'Maker', role: 'Org Admin' }
      await acme.apply({ memberships: [member] }, { adopt: true })
      const files = { memberships: [{ ...member, role: 'Org Viewer' }] }
      const plan = await acme.plan(files)
      await maker.call(api.apiKeys.create, { body: { orgId, name: 'New', scopes: ['devices:read'] } })
      expect(await refusalOf(files, plan)).toBe('what ends with the changes')
    })

    it('is who deleted what the files call otherwise than whoever renamed it before', async () => {
      const { acme, bakery, drift } = await start()
      const files = { sites: [{ org: 'bakery', name: 'Annex' }] }
      await acme.apply(files)
      const { data } = await bakery.client.call(api.sites.list, {})
      const { id } = data.find(({ name }) => name === 'Annex')!
      await bakery.client.call(api.sites.update, { params: { id }, body: { name: 'Depot' } })
      await bakery.client.call(api.sites.remove, { params: { id } })
      expect(await drift(files)).toEqual([[null, 'bakery-admin@example.com', 'site.delete']])
    })
  })
})
