import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { kinds, sections } from '../../src/configuration/contract.ts'
import { unwrap } from '../../src/core/schema.ts'
import { inTurn } from '../databases.ts'
import { changed, dump } from '../laws/tables.ts'
import { endpointsOf, issuer, oidc, start } from '../sso/provider-fixture.ts'
import { configurationOf, type Document } from './fixture.ts'

const hook = {
  org: 'bakery',
  name: 'Tickets',
  url: 'https://hooks.example.com/in?key=k-e-y',
  secret: 's-e-c-r-e-t',
  events: ['device.enrolled'],
  headers: [{ key: 'Authorization', value: 'hush-hush' }],
}
const without = (object: Record<string, unknown>, ...fields: string[]) =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !fields.includes(name)))
const leftOut = (section: (typeof sections)[number], object: number, ...fields: string[]) =>
  fields.map((field) => ({ section, object, field }))

it('a plan that goes without a secret has what stands for it, wherever an object cannot be made without', () => {
  for (const section of sections) {
    const { create, fields, needed = {}, placeholders = {} } = kinds[section]
    const shape = (
      unwrap(create.body!) as unknown as { shape: Record<string, { safeParse(v: unknown): object }> }
    ).shape
    const required = fields.filter(({ name, field, guard, isMade }) => {
      const isOptional = (shape[field]?.safeParse(undefined) as { success?: boolean } | undefined)?.success
      return guard !== undefined && isMade && (!isOptional || name in needed)
    })
    expect([section, required.map(({ name }) => name).filter((name) => !(name in placeholders))]).toEqual([
      section,
      [],
    ])
  }
})

inTurn((open) => {
  const begin = async () => {
    const { service, world } = await start(open)
    const acme = configurationOf(service)(world.tokens.acme)
    const plan = (document: Document, withoutSecrets: ReturnType<typeof leftOut>) =>
      acme.client.call(api.configuration.plan, { body: { document, withoutSecrets } })
    return { service, acme, plan }
  }

  describe('a plan without secrets', () => {
    it('compares everything else, and names what it does not compare', async () => {
      const { acme, plan } = await begin()
      await acme.apply({ webhooks: [hook] })
      const fields = ['secret', 'url', 'headers']
      const open = without(hook, ...fields)
      const same = await plan({ webhooks: [open] }, leftOut('webhooks', 0, ...fields))
      const about = { section: 'webhooks', org: 'bakery', name: 'Tickets' }
      expect(same).toMatchObject({ changes: [], notCompared: fields.map((field) => ({ ...about, field })) })
      const other = { ...open, url: 'https://hooks.example.com/in?key=other', status: 'paused' }
      const { changes } = await plan({ webhooks: [other] }, leftOut('webhooks', 0, 'secret', 'headers'))
      expect(changes).toMatchObject([
        {
          action: 'update',
          after: { status: 'paused', url: 'https://hooks.example.com/in?******** (changed)' },
        },
      ])
      expect((await acme.plan({ webhooks: [hook] })).notCompared).toBeUndefined()
    })

    it('plans what is new as if its secrets were there, with every other fault, and shows nothing in their place', async () => {
      const { service, plan } = await begin()
      const provider = { org: 'bakery', ...without(oidc, 'clientSecret'), ...endpointsOf(issuer) }
      const document = {
        webhooks: [without(hook, 'secret', 'url', 'headers')],
        ssoProviders: [{ ...provider, status: 'active' }],
      }
      const fields = [
        ...leftOut('webhooks', 0, 'secret', 'url', 'headers'),
        ...leftOut('ssoProviders', 0, 'clientSecret'),
      ]
      const before = await dump(service.storage)
      const planned = await plan(document, fields)
      expect(changed(before, await dump(service.storage))).toEqual([])
      expect(planned.changes).toMatchObject([
        { action: 'create', name: 'Tickets', after: { secret: '********', url: '********' } },
        { action: 'create', name: oidc.name, after: { clientSecret: '********' } },
        { action: 'update', name: oidc.name, after: { status: 'active' } },
      ])
      for (const { placeholders = {} } of Object.values(kinds))
        for (const text of Object.values(placeholders)) expect(JSON.stringify(planned)).not.toContain(text)
      const wrong = { ...document, webhooks: [{ ...document.webhooks[0], retryPolicy: { maxRetries: 99 } }] }
      await expect(plan(wrong, fields)).rejects.toMatchObject({
        details: [{ path: 'body.document.webhooks.0.retryPolicy.maxRetries' }],
      })
    })

    it('says that a secret will be set where there is none', async () => {
      const { acme, plan } = await begin()
      await acme.apply({ webhooks: [{ ...hook, secret: null }] })
      const { changes } = await plan(
        { webhooks: [without(hook, 'secret')] },
        leftOut('webhooks', 0, 'secret'),
      )
      expect(changes).toMatchObject([{ action: 'update', before: { secret: null } }])
      expect(JSON.stringify(changes[0]!.after)).toContain('********')
    })

    it('has a version that no apply takes', async () => {
      const { service, acme, plan } = await begin()
      await acme.apply({ webhooks: [hook] })
      const open = { ...without(hook, 'secret'), status: 'paused' }
      const { version } = await plan({ webhooks: [open] }, leftOut('webhooks', 0, 'secret'))
      const before = await dump(service.storage)
      for (const document of [{ webhooks: [open] }, { webhooks: [{ ...hook, status: 'paused' }] }])
        await expect(acme.apply(document, {}, version)).rejects.toMatchObject({ status: 409 })
      expect(changed(before, await dump(service.storage))).toEqual([])
    })

    it('goes without nothing but secrets that an object leaves out', async () => {
      const { plan } = await begin()
      const document = { webhooks: [without(hook, 'secret')] }
      const path = 'body.withoutSecrets.0'
      for (const wrong of [
        leftOut('webhooks', 0, 'events'),
        leftOut('webhooks', 0, 'headers'),
        leftOut('webhooks', 1, 'secret'),
        leftOut('sites', 0, 'name'),
      ]) {
        const failure = await plan(document, [...wrong, ...leftOut('webhooks', 0, 'secret')]).catch(
          (one) => one,
        )
        expect(failure).toMatchObject({ status: 400, details: [{ path }] })
      }
      // What is left out without being named is missing from the file.
      await expect(plan(document, [])).rejects.toMatchObject({
        details: [{ path: 'body.document.webhooks.0.secret' }],
      })
    })
  })
})
