import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { digestOf } from '../../src/configuration/plan-version.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { OutboundFailure } from '../../src/core/outbound.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addRole, buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const other = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD'
const token = 'Bearer hush-hush'
const hook = {
  name: 'Tickets',
  url: 'https://hooks.example.com/in?key=k-e-y',
  secret,
  events: ['device.enrolled' as const, 'alert.triggered' as const],
  headers: [{ key: 'Authorization', value: token }],
}

inTurn((open) => {
  /** `asked`: names that were looked up. */
  const start = async () => {
    const asked: string[] = []
    const outbound = {
      send: async () => {
        throw new OutboundFailure('refused', 'nothing is sent')
      },
      locateHost: async ({ hostname }: URL) => {
        asked.push(hostname)
        return hostname === '10.0.0.1' ? ({ network: 'private' } as const) : ({ network: 'public' } as const)
      },
      close: async () => {},
    }
    const service = await startService(open, { outside: { outbound } })
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const bakery = by(world.tokens.bakery)
    const hooks = async () =>
      (await bakery.client.call(api.webhooks.list, {})).data.filter(({ name }) => name !== 'bakery webhook')
    return { service, world, by, asked, hooks, bakery, acme: by(world.tokens.acme) }
  }
  const nothingOf = (text: string) => {
    for (const hidden of [secret, other, 'hush-hush', 'k-e-y']) expect(text).not.toContain(hidden)
  }

  describe('webhooks in files', () => {
    it('are made, changed and deleted, with an audit entry of each change', async () => {
      const { service, acme, hooks } = await start()
      const own = { org: 'bakery', ...hook, retryPolicy: { maxRetries: 8 } }
      const before = await dump(service.storage)
      const plan = await acme.plan({ webhooks: [own] })
      const policy = { maxRetries: 8, initialDelayMs: 1000, backoffMultiplier: 2, maxDelayMs: 300_000 }
      expect(plan.changes).toMatchObject([
        { action: 'create', section: 'webhooks', org: 'bakery', name: 'Tickets' },
        { action: 'update', name: 'Tickets', after: { retryPolicy: { maxRetries: 8 } } },
      ])
      expect(changed(before, await dump(service.storage))).toEqual([])
      const news = await newEntries(service)
      await acme.apply({ webhooks: [own] })
      expect(await hooks()).toMatchObject([
        { name: 'Tickets', hasSecret: true, retryPolicy: policy, status: 'active' },
      ])
      expect((await acme.plan({ webhooks: [own] })).changes).toEqual([])
      // The defaults, which stand for what is left out.
      const usual = { ...own, retryPolicy: {}, status: 'paused' }
      expect((await acme.apply({ webhooks: [usual] })).changes).toMatchObject([
        { action: 'update', before: { status: 'active' }, after: { status: 'paused' } },
        {
          action: 'update',
          before: { retryPolicy: { maxRetries: 8 } },
          after: { retryPolicy: { maxRetries: 5 } },
        },
      ])
      expect((await acme.plan({ webhooks: [usual] })).changes).toEqual([])
      const gone = await acme.apply({ webhooks: [] }, { prune: true })
      expect(gone.changes).toMatchObject([{ action: 'delete', name: 'Tickets' }])
      expect(await hooks()).toEqual([])
      const entries = (await news()).filter(({ action }) => action !== 'config.apply')
      expect(entries.map(({ action }) => action)).toEqual([
        'webhook.create',
        'webhook.retry_policy.update',
        'webhook.update',
        'webhook.retry_policy.update',
        'webhook.delete',
      ])
      nothingOf(JSON.stringify([entries, plan, gone]))
    })

    it('have secrets that are compared and never shown', async () => {
      const { bakery, hooks } = await start()
      await bakery.apply({ webhooks: [hook] })
      const same = await bakery.plan({ webhooks: [hook] })
      expect(same.changes).toEqual([])
      const others = {
        ...hook,
        secret: other,
        url: 'https://hooks.example.com/in?key=another',
        headers: [{ key: 'Authorization', value: 'Bearer another' }],
      }
      const plan = await bakery.plan({ webhooks: [others] })
      expect(plan.changes).toMatchObject([
        {
          action: 'update',
          before: {
            secret: '********',
            url: 'https://hooks.example.com/in?********',
            headers: [{ key: 'Authorization', value: '********' }],
          },
          after: {
            secret: '******** (changed)',
            url: 'https://hooks.example.com/in?******** (changed)',
            headers: [{ key: 'Authorization', value: '******** (changed)' }],
          },
        },
      ])
      nothingOf(JSON.stringify(plan))
      await bakery.apply({ webhooks: [others] })
      expect((await bakery.plan({ webhooks: [others] })).changes).toEqual([])
      const unsigned = { ...others, secret: null, headers: [], url: 'https://hooks.example.com/in' }
      await bakery.apply({ webhooks: [unsigned] })
      expect(await hooks()).toMatchObject([{ hasSecret: false, headers: [] }])
      const deletion = await bakery.plan({ webhooks: [] }, { prune: true })
      nothingOf(JSON.stringify(deletion))
    })

    it('lead elsewhere with the headers of their file, and back without them', async () => {
      const { bakery, hooks } = await start()
      const elsewhere = { ...hook, url: 'https://elsewhere.example.com/in' }
      const plain = { ...hook, url: 'https://hooks.example.com/in' }
      await bakery.apply({ webhooks: [plain] })
      const { headers: _, ...bare } = elsewhere
      await expect(bakery.plan({ webhooks: [bare] })).rejects.toMatchObject({
        details: [
          { path: 'body.document.webhooks.0.headers', message: expect.stringContaining('another scheme') },
        ],
      })
      const { applyId, changes } = await bakery.apply({ webhooks: [elsewhere] })
      expect(changes).toMatchObject([{ action: 'update', after: { url: elsewhere.url } }])
      const params = { id: applyId }
      const { version, lost } = await bakery.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(lost).toMatchObject([
        { name: 'Tickets', reason: expect.stringContaining('no headers any more') },
      ])
      await bakery.client.call(api.configurationApplies.rollback, { params, body: { version } })
      expect(await hooks()).toMatchObject([{ url: plain.url, headers: [] }])
    })

    it('have secrets that files set again when no key of the service opens them', async () => {
      const { service, bakery, hooks } = await start()
      const unsigned = { ...hook, secret: null, headers: [] }
      await bakery.apply({ webhooks: [unsigned] })
      const { id } = (await hooks())[0]!
      const lost = createCipher(['a key that is lost'])
      await service.storage.write((tx) =>
        tx
          .updateTable('webhooks')
          .set({
            secret: lost.encrypt('x', `webhooks.secret.${id}`),
            headers: lost.encrypt('[]', `webhooks.headers.${id}`),
          })
          .where('id', '=', id)
          .execute(),
      )
      const { changes } = await bakery.apply({ webhooks: [unsigned] })
      expect(changes).toMatchObject([{ action: 'update', after: { secret: null, headers: [] } }])
      expect(await hooks()).toMatchObject([{ hasSecret: false, unreadable: [] }])
    })

    it('have a version that says nothing about their secrets to who has no key of the service', async () => {
      const one = await start()
      const documents = [hook, { ...hook, secret: other }]
      const [first, second] = await Promise.all(
        documents.map((each) => one.bakery.plan({ webhooks: [each] })),
      )
      expect(first!.version).not.toBe(second!.version)
      expect((await one.bakery.plan({ webhooks: [hook] })).version).toBe(first!.version)
      // What it is a digest of is known to who guesses, but for the secret: without a key it could be tried out.
      const wanted = { set: 'default', document: { webhooks: [hook] }, adopt: false, prune: false }
      const digests = await Promise.all(
        ['a key', 'another key', 'a key'].map((key) => {
          const { fingerprint } = createCipher([key])
          return digestOf(wanted, [], [], { fingerprint, yieldIfDue: async () => {} })
        }),
      )
      expect(new Set(digests).size).toBe(2)
      expect(digests[0]).toBe(digests[2])
    })

    it('look up no name and send nothing, neither planned nor applied, and reach no address inside', async () => {
      const { asked, bakery, hooks } = await start()
      await bakery.apply({ webhooks: [hook] })
      expect(asked).toEqual([])
      expect(await hooks()).toHaveLength(1)
      const inside = { ...hook, name: 'Inside', url: 'https://10.0.0.1/in' }
      const local = { ...hook, name: 'Local', url: 'https://localhost/in' }
      await expect(bakery.plan({ webhooks: [hook, inside, local] })).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'body.document.webhooks.1.url', message: expect.stringContaining('private') },
          { path: 'body.document.webhooks.2.url' },
        ],
      })
    })

    it('say all faults at their fields, and need a secret, as none is displayed', async () => {
      const { bakery } = await start()
      const { secret: _, ...open } = hook
      const delays = { initialDelayMs: 5000, maxDelayMs: 1000 }
      await expect(
        bakery.plan({
          webhooks: [
            open,
            { ...hook, name: 'b', retryPolicy: delays },
            { ...hook, name: 'c', headers: [{ key: 'Host', value: 'x' }] },
          ],
        }),
      ).rejects.toMatchObject({
        details: [
          { path: 'body.document.webhooks.0.secret', message: expect.stringContaining(`\${env:NAME}`) },
          { path: 'body.document.webhooks.1.retryPolicy.maxDelayMs' },
          { path: 'body.document.webhooks.2.headers.0.key' },
        ],
      })
    })

    it('are taken over, and exported without their secrets, which a plan then leaves alone', async () => {
      const { bakery, hooks } = await start()
      await bakery.client.call(api.webhooks.create, { body: hook })
      const { document, uncovered } = await bakery.exported()
      const webhooks = document.webhooks!.filter(({ name }) => name === hook.name)
      nothingOf(JSON.stringify(document))
      expect(Object.keys(webhooks[0]!).sort()).toEqual(['events', 'name', 'org', 'retryPolicy', 'status'])
      expect(uncovered.map(({ what }) => what)).toEqual(
        expect.arrayContaining(['secrets in webhooks.secret', 'secrets in webhooks.url']),
      )
      await expect(bakery.plan({ webhooks })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('--adopt') }],
      })
      const { id } = (await hooks())[0]!
      expect((await bakery.apply({ webhooks }, { adopt: true })).changes).toMatchObject([
        { action: 'adopt', id, refused: null },
      ])
      expect((await bakery.plan({ webhooks })).changes).toEqual([])
      expect((await bakery.plan({ webhooks: [hook] })).changes).toEqual([])
    })

    it('need the permission of the single call', async () => {
      const { service, world, by, bakery } = await start()
      const { id } = world.orgs.bakery
      const role = await addRole(service, id, 'Planner', [
        'config:read',
        'config:apply',
        'organizations:read',
      ])
      const planner = by(await addOrgUser(service, 'planner', id, { role }))
      const { changes, version } = await planner.plan({ webhooks: [hook] })
      expect(changes).toMatchObject([{ action: 'create', refused: expect.any(String) }])
      await expect(planner.apply({ webhooks: [hook] }, {}, version)).rejects.toMatchObject({ status: 403 })
      // One site is not the whole organization, whose events a webhook receives.
      const some = by(await addOrgUser(service, 'some', id, { siteIds: [world.orgs.bakery.siteId] }))
      await expect(some.plan({ webhooks: [] })).rejects.toMatchObject({ status: 403 })
      expect((await bakery.plan({ webhooks: [hook] })).totals).toMatchObject({ create: 1, refused: 0 })
    })
  })
})
