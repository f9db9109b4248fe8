import { describe, expect, it } from 'vitest'
import type { z } from 'zod'
import { api } from '../../src/api.ts'
import { ApiError } from '../../src/core/transport.ts'
import { ProviderChange } from '../../src/sso/contract.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addRole } from '../world.ts'
import { endpointsOf, oidc } from './provider-fixture.ts'
import { rsaKeys, selfSigned } from './saml/certificate.ts'
import { certificate } from './saml/identity-provider.ts'
import { addMember, browser, codeIn, errorIn, person, start } from './sign-in/sign-in-fixture.ts'

const admin = { ...person, sub: 'subject-2', email: 'boss@bakery.example.com' }

inTurn((open) => {
  /** The bakery, with a member who may only read and write organizations. */
  async function setUp() {
    const on = await start(open)
    const { service, bakery } = on
    await addMember(service, bakery.id, admin.email)
    const writers = await addRole(service, bakery.id, 'writers', [
      'organizations:read',
      'organizations:write',
    ])
    const lesser = service.client(await addOrgUser(service, 'lesser', bakery.id, { role: writers }))
    const lessers = async (more: object = {}) => {
      const body = { ...oidc, autoProvision: false, ...more } as never
      const { data } = await lesser.call(api.ssoProviders.create, { body })
      const params = { id: data.id }
      return lesser.call(api.ssoProviders.setStatus, { params, body: { status: 'active' } })
    }
    const exchanged = async (location: string) =>
      (await service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })).accessToken
    return { ...on, writers, lesser, lessers, exchanged }
  }

  describe('an identity provider', () => {
    it('does not make whoever configures it an administrator', async () => {
      const { service, bakery, signIn, lessers } = await setUp()
      const { data, warning } = await lessers()
      expect(data).toMatchObject({ vouches: ['organizations:read', 'organizations:write'] })
      expect(warning).toMatch(/^\d members hold permissions that whoever configured it did not/)
      const news = await newEntries(service)
      const { location } = await signIn(admin)
      expect(errorIn(location)).toBe('beyond_provider')
      expect(codeIn(location)).toBe('')
      expect(await news()).toMatchObject([
        {
          action: 'user.login.failed',
          orgId: bakery.id,
          result: 'denied',
          actorEmail: admin.email,
          details: { reason: 'beyond_provider', detail: expect.stringContaining('users:write') },
        },
      ])
      expect(await service.storage.read.selectFrom('sso_identities').selectAll().execute()).toEqual([])
    })

    it('accepts users who hold no more than whoever configured it', async () => {
      const { service, bakery, signIn, lessers, exchanged, writers } = await setUp()
      await lessers()
      await addOrgUser(service, 'peer', bakery.id, { role: writers })
      const { location } = await signIn({ ...person, email: 'peer@example.com' })
      const me = await service.client(await exchanged(location)).call(api.auth.me)
      expect(me.user.email).toBe('peer@example.com')
    })

    it('vouches for more once activated by someone who holds more, and warns until then', async () => {
      const { client, lessers, signIn, setStatus } = await setUp()
      const { id } = (await lessers()).data
      const params = { id }
      const before = await client.call(api.ssoProviders.show, { params })
      expect(before.membersBeyond).toBeGreaterThan(1)
      expect(before.warning).toContain('they cannot sign in with it')
      const trial = await client.call(api.ssoProviders.test, { params })
      expect(trial.warning).toBe(before.warning)
      // A change of the name is not a change of the identity settings.
      await client.call(api.ssoProviders.update, { params, body: { name: 'Ours' } })
      expect(errorIn((await signIn(admin)).location)).toBe('beyond_provider')
      const { warning } = await setStatus(id, 'active')
      expect(warning).toBeUndefined()
      expect(await client.call(api.ssoProviders.show, { params })).toMatchObject({ membersBeyond: 0 })
      expect(codeIn((await signIn(admin)).location)).not.toBe('')
    })

    it('vouches only for the permissions of whoever last changes its identity settings', async () => {
      const { lesser, provider, signIn, service, exchanged } = await setUp()
      const { id } = await provider()
      const params = { id }
      const session = service.client(await exchanged((await signIn(admin)).location))
      await session.call(api.auth.me)
      await lesser.call(api.ssoProviders.update, { params, body: { name: 'Renamed' } })
      await session.call(api.auth.me)
      await lesser.call(api.ssoProviders.update, { params, body: { scopes: 'openid email' } })
      await expect(session.call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      expect(errorIn((await signIn(admin)).location)).toBe('beyond_provider')
    })

    it.each(['oidc', 'saml'] as const)(
      'is bound to the last author by a change of any field (%s)',
      async (type) => {
        const { client, lesser, provider, writers } = await setUp()
        const outcomeOf = async (field: string, schema: z.ZodType) => {
          const { id } = await provider({ ...whole, type })
          const params = { id }
          const { data: before } = await client.call(api.ssoProviders.show, { params })
          for (const value of valuesOf(schema, writers)) {
            if (value === before[field as keyof typeof before]) continue
            // A new issuer does not keep the old endpoints unless they are given, nor another token URL the secret.
            const secret = field === 'tokenUrl' && { clientSecret: 'another' }
            const body = { ...endpoints, ...secret, [field]: value }
            try {
              const { data } = await lesser.call(api.ssoProviders.update, { params, body })
              return data.vouches.length === before.vouches.length ? 'goes on' : `vouches for ${data.vouches}`
            } catch (error) {
              if (!(error instanceof ApiError) || ![400, 403].includes(error.status)) throw error
              if (error.status === 403) return 'refused'
            }
          }
          throw new Error(`no value is known for ${field}: add one to the candidates`)
        }
        const outcomes: Record<string, string> = {}
        for (const [field, schema] of Object.entries(ProviderChange.shape)) {
          if (!apart.includes(field)) outcomes[field] = await outcomeOf(field, schema)
        }
        const bound = Object.keys(outcomes).map((field) => [field, bindings])
        expect(outcomes).toEqual({ ...Object.fromEntries(bound), name: 'goes on' })
      },
    )

    it('ends the session of a member whose role outgrows it', async () => {
      const { service, bakery, client, signIn, lessers, exchanged, writers } = await setUp()
      await lessers()
      await addOrgUser(service, 'peer', bakery.id, { role: writers })
      const { location } = await signIn({ ...person, email: 'peer@example.com' })
      const session = service.client(await exchanged(location))
      await session.call(api.auth.me)
      const more = ['users:read', 'organizations:read', 'organizations:write'].map((pair) => {
        const [resource = '', action = ''] = pair.split(':')
        return { resource, action }
      })
      await client.call(api.roles.update, { params: { id: writers }, body: { permissions: more } })
      await expect(session.call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      expect(errorIn((await signIn({ ...person, email: 'peer@example.com' })).location)).toBe(
        'beyond_provider',
      )
    })

    it('creates no account with a role beyond it, even if the role grew later', async () => {
      const { service, bakery, client, lesser, signIn, lessers, setStatus } = await setUp()
      const small = await addRole(service, bakery.id, 'small', ['organizations:read'])
      const { id } = (await lessers({ autoProvision: true, defaultRoleId: small })).data
      const permissions = [{ resource: 'users', action: 'write' }]
      await client.call(api.roles.update, { params: { id: small }, body: { permissions } })
      expect(errorIn((await signIn()).location)).toBe('beyond_provider')
      await expect(
        lesser.call(api.ssoProviders.setStatus, { params: { id }, body: { status: 'active' } }),
      ).rejects.toMatchObject({ status: 403, code: 'forbidden' })
      await setStatus(id, 'active')
      expect(codeIn((await signIn()).location)).not.toBe('')
    })

    it('shows this in a trial', async () => {
      const { service, idp, lesser, lessers } = await setUp()
      const { id } = (await lessers()).data
      const params = { id }
      const { id: testId, loginUrl } = await lesser.call(api.ssoTrials.begin, { params, body: {} })
      const by = browser()
      const begun = await by.open(`${service.url}${new URL(loginUrl).pathname}${new URL(loginUrl).search}`)
      const back = new URL(await idp.authorize(begun.location, admin))
      await by.open(`${service.url}/api/v1/sso/callback${back.search}`)
      const trial = await lesser.call(api.ssoTrials.show, { params: { ...params, testId } })
      expect(trial.status).toBe('failed')
      expect(trial.steps.at(-1)).toMatchObject({ ok: false, code: 'beyond_provider' })
    })
  })
})

/** Fields that cannot change or bind nobody. Enforcing also ends the session of the author. */
const apart = ['orgId', 'force', 'enforceSSO']
const bindings = expect.toBeOneOf(['vouches for organizations:read,organizations:write', 'refused'])

const endpoints = endpointsOf(oidc.issuer)
/** The fields that both types need. */
const whole = {
  ...endpoints,
  entityId: 'https://idp.example.com/saml',
  ssoUrl: 'https://idp.example.com/saml/sign-in',
  certificate: certificate.toString(),
}
const otherCertificate = selfSigned(rsaKeys()).toString()

/** Values that the schema of a field accepts: its choices, or one of the candidates below. */
function valuesOf(schema: z.ZodType, roleId: string): unknown[] {
  const { enum: own, anyOf = [] } = schema.toJSONSchema({ io: 'input', unrepresentable: 'any' })
  const choices = [own, ...anyOf.map((one) => one.enum)].flatMap((some) => some ?? [])
  const texts = ['https://mine.example.com', 'mine.example.com', 'openid email', roleId, otherCertificate]
  const candidates = [...choices, true, false, ...texts, { email: 'mail', name: 'name' }]
  return candidates.filter((value) => schema.safeParse(value).success)
}
