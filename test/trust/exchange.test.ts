import { exportSPKI } from 'jose'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { sweepTokens } from '../../src/trust/store.ts'
import { inTurn } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { TokenIssuer } from './issuer.ts'
import { gitlab, refused, run, start, unsigned, withPublicKey } from './trust-fixture.ts'

inTurn((open) => {
  describe('the token of a job', () => {
    it('is exchanged for an access token with the permissions of its policy', async () => {
      const { create, exchange, tokenOf, service, bakery, clock, client } = await start(open)
      const { id, permissions } = await create()
      const news = await newEntries(service)
      const given = await exchange(await tokenOf())
      expect(given).toEqual({
        accessToken: expect.any(String),
        expiresInSeconds: 600,
        permissions,
        orgId: bakery.id,
        policy: { id, name: 'Releases' },
      })
      const [entry, ...others] = await news()
      expect(others).toEqual([])
      expect(entry).toMatchObject({
        action: 'auth.federated',
        result: 'success',
        orgId: bakery.id,
        actorType: 'api_key',
        actorId: id,
        resourceType: 'trust_policy',
        resourceId: id,
        resourceName: 'Releases',
        details: {
          issuer: 'https://token.actions.githubusercontent.com',
          subject: run.sub,
          workload: { policy: 'Releases', run: 'bakery/tills run 9876543210 attempt 2' },
          claims: {
            run_id: '9876543210',
            run_attempt: '2',
            actor: 'ada',
            sha: run.sha,
            workflow_ref: run.workflow_ref,
          },
        },
      })
      expect(JSON.stringify(entry)).not.toContain(given.accessToken)
      const { data } = await client.call(api.trustPolicies.show, { params: { id } })
      expect(data.lastUsedAt).toBe(clock())
      expect(data.updatedAt).toBe(data.createdAt)
    })

    it('can be exchanged once, at any process', async () => {
      const { create, exchange, tokenOf, service, outside, clock, bakery } = await start(open)
      await create()
      const second = await serviceOn(service, { clock, outside })
      const token = await tokenOf()
      const at = [service, second, service, second].map((one) => exchange(token, {}, one))
      const results = await Promise.allSettled(at)
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      const news = await newEntries(service)
      for (const one of [service, second])
        await expect(exchange(token, {}, one)).rejects.toEqual(refused('replayed'))
      expect(await news()).toMatchObject(
        Array(2).fill({
          action: 'auth.federated.failed',
          result: 'failure',
          orgId: bakery.id,
          details: { reason: 'replayed', policy: { name: 'Releases' }, subject: run.sub },
        }),
      )
    })

    it('is remembered as long as it could be accepted, and then forgotten', async () => {
      const { create, exchange, tokenOf, clock, service } = await start(open)
      await create()
      const iat = Date.parse(clock()) / 1000
      const token = await tokenOf({ exp: iat + 9_999_999 })
      await exchange(token)
      clock.forward(3600)
      await expect(exchange(token)).rejects.toEqual(refused('replayed'))
      clock.forward(60)
      await expect(exchange(token)).rejects.toEqual(refused('too_old'))
      const kept = await service.storage.read.selectFrom('trust_tokens').select('expires_at').execute()
      expect(kept).toEqual([{ expires_at: new Date((iat + 3720) * 1000).toISOString() }])
    })

    it('leaves no record of its issuer once no policy trusts it', async () => {
      const { create, exchange, tokenOf, clock, service, client } = await start(open)
      const { id } = await create()
      const issuers = () => service.storage.read.selectFrom('trust_issuers').select('issuer').execute()
      await exchange(await tokenOf())
      await service.storage.write((tx) => sweepTokens(tx, clock()))
      expect(await issuers()).toHaveLength(1)
      await client.call(api.trustPolicies.remove, { params: { id } })
      await service.storage.write((tx) => sweepTokens(tx, clock()))
      expect(await issuers()).toEqual([])
    })

    it.each([
      ['of a repository that took over the name', { repository_id: '74291848', repository_owner_id: '66' }],
      ['of a fork', { repository: 'mallory/tills', repository_id: '99', repository_owner_id: '77' }],
      ['of another environment', { environment: 'staging' }],
      ['without an environment', { environment: undefined }],
      ['for another service', { aud: 'https://other.example.com' }],
      ['for this service and another one', { aud: ['https://svc.example.com', 'https://other.example.com'] }],
    ])('%s is refused', async (_what, claims) => {
      const { create, exchange, tokenOf } = await start(open)
      await create()
      const token = await tokenOf(claims)
      await expect(exchange(token)).rejects.toEqual(refused('no_policy'))
    })

    it.each([
      ['expired', { exp: -61 }],
      ['not_yet_valid', { nbf: 120 }],
      ['too_old', { iat: -3661 }],
    ])('is refused when it is %s', async (reason, offsets) => {
      const { create, exchange, tokenOf, clock } = await start(open)
      await create()
      const at = Date.parse(clock()) / 1000
      const claims = Object.fromEntries(Object.entries(offsets).map(([name, by]) => [name, at + by]))
      await expect(exchange(await tokenOf(claims))).rejects.toEqual(refused(reason))
      await expect(exchange(await tokenOf({ jti: undefined }))).rejects.toEqual(refused('incomplete'))
      await expect(exchange(await tokenOf())).resolves.toBeTruthy()
    })

    it('without a valid signature of its issuer is refused without a reason', async () => {
      const { create, exchange, tokenOf, issuer, other, clock, bakery, service } = await start(open)
      const { id } = await create()
      const at = Date.parse(clock()) / 1000
      const claims = { ...run, iss: issuer.url, jti: newId(), iat: at, exp: at + 300 }
      const { publicKey } = await issuer.key
      const impostor = new TokenIssuer(issuer.url)
      const good = await tokenOf()
      const [head, body, signature] = good.split('.')
      const changed = Buffer.from(JSON.stringify({ ...claims, actor: 'mallory' })).toString('base64url')
      const forged = {
        'alg none': unsigned(claims),
        'HS256 with the public key': await withPublicKey(await exportSPKI(publicKey), claims),
        'another key': await impostor.token(run, clock()),
        'another payload': `${head}.${changed}.${signature}`,
        'no signature': `${head}.${body}.`,
        'an issuer that nobody trusts': await other.token(run, clock()),
        'the keys of another issuer': await other.token({ ...run, iss: issuer.url }, clock()),
        'no JWT': 'not a token at all',
        'no JSON': `${head}.${Buffer.from('[]').toString('base64url')}.${signature}`,
        'an issuer that is no text': unsigned({ ...claims, iss: ['x'] }),
      }
      for (const [what, token] of Object.entries(forged)) {
        for (const more of [{}, { policyId: id }, { orgId: bakery.id }])
          await expect(exchange(token, more), what).rejects.toEqual(refused())
      }
      const news = await newEntries(service)
      await expect(exchange(forged['alg none'], { policyId: id })).rejects.toEqual(refused())
      await expect(exchange(forged['alg none'])).rejects.toEqual(refused())
      const entries = await news()
      expect(entries.map(({ orgId, details }) => [orgId, details.reason])).toEqual([
        [bakery.id, 'algorithm_refused'],
        [null, 'algorithm_refused'],
      ])
      await exchange(good)
    })

    it('is accepted after a key rotation of its issuer', async () => {
      const { create, exchange, tokenOf, issuer, clock } = await start(open)
      await create()
      const before = await tokenOf()
      await exchange(before)
      issuer.rotate('ES256')
      const after = await tokenOf()
      // The keys were fetched just now: unknown key IDs cannot cause repeated fetches.
      await expect(exchange(after)).rejects.toEqual(refused())
      clock.forward(31)
      await exchange(after)
      await expect(exchange(before)).rejects.toEqual(refused())
    })

    it('does not reveal which organizations and policies exist', async () => {
      const { create, exchange, tokenOf, garage, harbor } = await start(open)
      const { id } = await create()
      const fit = { ...run }
      for (const more of [
        { orgId: garage.id },
        { orgId: harbor.id },
        { orgId: newId() },
        { policyId: newId() },
        { policyId: harbor.policyId },
        { policyId: id, orgId: garage.id },
      ]) {
        await expect(exchange(await tokenOf(fit), more)).rejects.toEqual(refused('no_policy'))
      }
      await exchange(await tokenOf(fit), { policyId: id })
    })

    it('uses the oldest matching policy, or the named one', async () => {
      const { create, exchange, tokenOf, clock, bakery } = await start(open)
      const first = await create({ name: 'first' })
      clock.forward(1)
      const second = await create({ name: 'second', permissions: ['devices:read'] })
      expect((await exchange(await tokenOf())).policy.id).toBe(first.id)
      const named = await exchange(await tokenOf(), { policyId: second.id, orgId: bakery.id })
      expect([named.policy.name, named.permissions]).toEqual(['second', ['devices:read']])
    })

    it('must name an organization if another tenant trusts the same repository', async () => {
      const { create, exchange, tokenOf, bakery, harbor, service, world } = await start(open)
      await create({ name: 'trap' }, service.client(world.tokens.harbor))
      const own = await create()
      await expect(exchange(await tokenOf())).rejects.toEqual(refused('ambiguous'))
      expect((await exchange(await tokenOf(), { orgId: bakery.id })).policy.id).toBe(own.id)
      expect((await exchange(await tokenOf(), { orgId: harbor.id })).orgId).toBe(harbor.id)
    })

    it('is refused by an inactive policy, and in a suspended organization', async () => {
      const { create, change, exchange, tokenOf, system, bakery } = await start(open)
      const { id } = await create()
      await change(id, { status: 'inactive' })
      await expect(exchange(await tokenOf())).rejects.toEqual(refused())
      await create({ name: 'another', claims: { repository_id: '1' } })
      await expect(exchange(await tokenOf())).rejects.toEqual(refused('no_policy'))
      await change(id, { status: 'active' })
      const params = { id: bakery.id }
      await system.call(api.orgs.update, { params, body: { status: 'suspended' } })
      await expect(exchange(await tokenOf())).rejects.toEqual(refused('no_policy'))
      await system.call(api.orgs.update, { params, body: { status: 'active' } })
      await exchange(await tokenOf())
    })

    it('that a policy refuses is logged in its organization with the differing claims', async () => {
      const { create, exchange, tokenOf, service, bakery } = await start(open)
      const { id, name } = await create()
      const news = await newEntries(service)
      await expect(exchange(await tokenOf({ environment: 'staging' }))).rejects.toThrow()
      await expect(exchange(await tokenOf({ repository_id: '99' }))).rejects.toThrow()
      await expect(exchange(await tokenOf({ repository_id: '99' }), { orgId: bakery.id })).rejects.toThrow()
      const [own, fork, named] = await news()
      expect(own).toMatchObject({
        action: 'auth.federated.failed',
        result: 'failure',
        orgId: bakery.id,
        details: {
          reason: 'no_policy',
          policy: { id, name },
          differs: ['environment'],
          subject: run.sub,
          claims: { repository: 'bakery/tills', environment: 'staging', run_id: '9876543210' },
        },
      })
      expect(fork).toMatchObject({ orgId: null, details: { reason: 'no_policy' } })
      expect(fork?.details).not.toHaveProperty('policy')
      expect(named).toMatchObject({ orgId: bakery.id, details: { differs: ['repository_id'] } })
    })

    it('is rate limited by client address', async () => {
      const { exchange } = await start(open, { RATE_LIMIT_FEDERATED: '2/60' })
      for (const _time of [1, 2]) await expect(exchange('x')).rejects.toEqual(refused())
      await expect(exchange('x')).rejects.toMatchObject({ status: 429, code: 'rate_limited' })
    })
  })

  describe("the location of an issuer's keys", () => {
    const documents = ({ asked }: TokenIssuer) => asked.filter((url) => url.endsWith('configuration')).length

    it('is fetched when a policy is created, and again after a day', async () => {
      const { create, exchange, tokenOf, issuer, clock } = await start(open)
      await create()
      expect(documents(issuer)).toBe(1)
      await exchange(await tokenOf())
      clock.forward(24 * 3600 - 1)
      await exchange(await tokenOf())
      expect(documents(issuer)).toBe(1)
      clock.forward(1)
      issuer.jwksUrl = 'https://token.actions.githubusercontent.com/elsewhere'
      await exchange(await tokenOf())
      expect(documents(issuer)).toBe(2)
    })

    it('is fetched with the first token if the issuer was down before, at most once a minute', async () => {
      const { create, client, exchange, tokenOf, issuer, clock } = await start(open)
      issuer.silent = true
      const body = {
        name: 'a',
        issuer: issuer.url,
        claims: { repository_id: '1', ref: 'a' },
        permissions: ['devices:read'],
      }
      const { warning } = await client.call(api.trustPolicies.create, { body })
      expect(warning).toMatch(
        /^OIDC discovery failed for issuer "https:.*ECONNREFUSED.* asked again with the first/,
      )
      issuer.silent = false
      await expect(exchange(await tokenOf())).rejects.toEqual(refused())
      expect(documents(issuer)).toBe(0)
      clock.forward(60)
      await expect(exchange(await tokenOf())).rejects.toEqual(refused('no_policy'))
      expect(documents(issuer)).toBe(1)
      await create()
    })

    it('stays in use while the issuer is down', async () => {
      const { create, exchange, tokenOf, issuer, clock, service } = await start(open)
      await create()
      await exchange(await tokenOf())
      clock.forward(24 * 3600)
      const answer = issuer.answer.bind(issuer)
      issuer.answer = async (url) => (url.endsWith('configuration') ? undefined : answer(url))
      await exchange(await tokenOf())
      const known = await service.storage.read.selectFrom('trust_issuers').select('jwks_url').execute()
      expect(known).toContainEqual({ jwks_url: `${issuer.url}/.well-known/jwks` })
    })
  })

  it('GitLab jobs can sign in too', async () => {
    const { create, exchange, other, clock } = await start(open)
    await create({ issuer: gitlab, claims: { project_id: '20', ref: 'main' } })
    const claims = {
      project_id: '20',
      ref: 'main',
      project_path: 'bakery/tills',
      pipeline_id: '1',
      job_id: '2',
    }
    const token = await other.token({ ...claims, aud: 'https://svc.example.com' }, clock())
    expect((await exchange(token)).permissions).toHaveLength(2)
  })
})
