import { jwtVerify, SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { type Endpoint, entriesOf, isMutation } from '../../src/core/endpoint.ts'
import { addSeconds } from '../../src/core/time.ts'
import { workloadTokens } from '../../src/trust/tokens.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, testSecrets } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { callOf, toWire } from '../laws/calls.ts'
import { recordsOf } from '../laws/fixture.ts'
import { Line } from '../laws/wire.ts'
import { releases, run, start } from './trust-fixture.ts'

const keys = api.enrollmentKeys
const forbidden = expect.objectContaining({ status: 403, code: 'forbidden' })
const cut = expect.objectContaining({ status: 401, code: 'invalid_token' })

inTurn((open) => {
  describe('a workload', () => {
    it('creates, rotates, lists and deletes enrollment keys, with which machines enroll', async () => {
      const { create, signIn, service, bakery, clock } = await start(open)
      const { id: policyId } = await create()
      const job = await signIn()
      const { key, ...minted } = await job.call(keys.create, { body: { name: 'till 7' } })
      expect(minted).toMatchObject({ orgId: bakery.id, maxUsage: 1, createdBy: policyId })
      expect(minted.expiresAt).toBe(addSeconds(clock(), 30 * 60))
      const params = { id: minted.id }
      expect(await job.call(keys.show, { params })).toEqual(minted)
      expect((await job.call(keys.list)).data).toContainEqual(minted)
      const machine = { ...api.agents.enroll.example, enrollmentKey: key }
      expect(await service.client().call(api.agents.enroll, { body: machine })).toMatchObject({
        orgId: bakery.id,
      })
      const rotated = await job.call(keys.rotate, { params, body: { maxUsage: 5 } })
      expect([rotated.maxUsage, rotated.usageCount]).toEqual([5, 0])
      expect(await job.call(keys.remove, { params })).toMatchObject({ success: true })
    })

    it('has the run of its workflow in the audit log', async () => {
      const { create, signIn, service, bakery, client } = await start(open)
      const { id } = await create()
      const job = await signIn({ run_attempt: '3' })
      const news = await newEntries(service)
      await job.call(keys.create, { body: { name: 'till 7' } })
      await expect(job.call(api.devices.list)).rejects.toEqual(forbidden)
      const workload = { policy: 'Releases', run: 'bakery/tills run 9876543210 attempt 3' }
      const by = { actorType: 'api_key', actorId: id, actorEmail: null, orgId: bakery.id }
      expect(await news()).toMatchObject([
        { ...by, action: 'enrollment_key.create', result: 'success', details: { workload } },
        { ...by, action: 'access.denied', result: 'denied', details: { workload, path: '/devices' } },
      ])
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'enrollment_key.create' } })
      expect(data[0]?.user).toMatchObject({ id, name: `Workload ${workload.run}`, role: 'api_key' })
    })

    it('has no permissions beyond its policy, and no access to endpoints for people', async () => {
      const { create, exchange, tokenOf, service, world, bakery } = await start(open)
      await create({ permissions: ['organizations:read'] })
      const { accessToken: token } = await exchange(await tokenOf())
      const records = await recordsOf(service, world.partners.acme, bakery)
      const line = new Line(service.url)
      const open_: string[] = []
      for (const { name, entry } of entriesOf(api)) {
        if (entry.access.who === 'public') continue
        const { status, text } = await line.send(toWire(entry, callOf(entry, records), token))
        if (status < 400) open_.push(name)
        else if (entry.access.who === 'user')
          expect([name, status, text]).toEqual([name, 403, expect.any(String)])
        else expect([name, status >= 401 && status < 500]).toEqual([name, true])
      }
      await line.close()
      expect(open_.sort()).toEqual(['auth.caller', 'enrollmentKeys.list', 'enrollmentKeys.show'])
    })

    it('can use endpoints that accept API keys, with the permission', async () => {
      const { create, signIn, bakery, garage } = await start(open)
      await create({ permissions: ['devices:read'] })
      const job = await signIn()
      const { data } = await job.call(api.devices.list)
      expect(new Set(data.map(({ orgId }) => orgId))).toEqual(new Set([bakery.id]))
      const params = { id: garage.deviceId }
      await expect(job.call(api.devices.show, { params })).rejects.toMatchObject({ status: 404 })
      await expect(job.call(keys.list)).rejects.toEqual(forbidden)
      const body = { displayName: 'mine' }
      const own = { id: bakery.deviceId }
      await expect(job.call(api.devices.update, { params: own, body })).rejects.toEqual(forbidden)
      await expect(job.call(api.search.everything, { query: { q: 'till' } })).rejects.toEqual(forbidden)
    })

    it('is limited to its organization', async () => {
      const { create, signIn, garage } = await start(open)
      await create()
      const job = await signIn()
      const denied = expect.objectContaining({ status: 403, code: 'org_access_denied' })
      const body = { name: 'a', orgId: garage.id }
      await expect(job.call(keys.create, { body })).rejects.toEqual(denied)
      await expect(job.call(keys.list, { query: { orgId: garage.id } })).rejects.toEqual(denied)
      const params = { id: garage.keyId }
      for (const call of [
        () => job.call(keys.show, { params }),
        () => job.call(keys.rotate, { params }),
        () => job.call(keys.remove, { params }),
      ]) {
        await expect(call()).rejects.toMatchObject({ status: 404 })
      }
    })

    it('cannot create a larger key than its policy allows', async () => {
      const { create, signIn, clock, bakery, system } = await start(open)
      await create()
      const job = await signIn()
      const mint = (body: object) => job.call(keys.create, { body: { name: 'a', ...body } })
      const fault = (...faults: [string, string][]) =>
        expect.objectContaining({
          status: 403,
          code: 'key_shape_exceeded',
          details: faults.map(([path, message]) => ({ path, message: expect.stringContaining(message) })),
        })
      const usage: [string, string] = ['body.maxUsage', 'at most 5']
      const lifetime: [string, string] = ['body.expiresAt', 'within 30 minutes']
      await expect(mint({ maxUsage: 6 })).rejects.toEqual(fault(usage))
      await expect(mint({ expiresAt: addSeconds(clock(), 1801) })).rejects.toEqual(fault(lifetime))
      await expect(mint({ maxUsage: 6, expiresAt: '2099-01-01T00:00:00Z' })).rejects.toEqual(
        fault(usage, lifetime),
      )
      const minted = await mint({ maxUsage: 5, expiresAt: addSeconds(clock(), 1800) })
      const rotate = (id: string, body: object = {}) => job.call(keys.rotate, { params: { id }, body })
      await expect(rotate(minted.id, { maxUsage: null })).rejects.toEqual(fault(usage))
      await expect(rotate(minted.id, { expiresAt: addSeconds(clock(), 1801) })).rejects.toEqual(
        fault(lifetime),
      )
      // Rotating a user's key without an expiry does not give a workload more than its policy allows.
      const body = { orgId: bakery.id, name: 'endless', expiresAt: '2099-01-01T00:00:00Z' }
      const endless = await system.call(keys.create, { body })
      await system.call(keys.rotate, { params: { id: endless.id }, body: { maxUsage: null } })
      expect(await rotate(endless.id)).toMatchObject({ maxUsage: 5, expiresAt: addSeconds(clock(), 1800) })
      clock.forward(60)
      expect((await rotate(minted.id, { maxUsage: 2 })).expiresAt).toBe(minted.expiresAt)
    })

    it('creates keys valid for an hour, even if its policy would allow more', async () => {
      const { create, signIn, clock } = await start(open)
      await create({ maxTtlMinutes: 600 })
      const { expiresAt } = await (await signIn()).call(keys.create, { body: { name: 'a' } })
      expect(expiresAt).toBe(addSeconds(clock(), 3600))
    })

    it('gets the same key for a repeated request, and another policy gets its own', async () => {
      const { create, exchange, tokenOf, service } = await start(open)
      const { id } = await create()
      const other = await create({ name: 'other' })
      const mint = async (policyId: string) => {
        const { accessToken } = await exchange(await tokenOf(), { policyId })
        const headers = { 'idempotency-key': 'release-1', 'content-type': 'application/json' }
        const client = service.client(accessToken)
        const { text } = await client.raw('POST', '/enrollment-keys', { body: '{"name":"a"}', headers })
        return (JSON.parse(text) as { key: string }).key
      }
      const first = await mint(id)
      expect(await mint(id)).toBe(first)
      expect(await mint(other.id)).not.toBe(first)
    })
  })

  describe('the session of a workload', () => {
    const listKeys = (client: Awaited<ReturnType<Awaited<ReturnType<typeof start>>['signIn']>>) =>
      client.call(keys.list)

    it('ends after ten minutes', async () => {
      const { create, signIn, clock } = await start(open)
      await create()
      const job = await signIn()
      clock.forward(599)
      await listKeys(job)
      clock.forward(1)
      await expect(listKeys(job)).rejects.toEqual(cut)
    })

    it.each([
      ['is deactivated', (it: Stage, id: string) => it.change(id, { status: 'inactive' })],
      ['is changed', (it: Stage, id: string) => it.change(id, { maxUsage: 4 })],
      [
        'is deactivated and activated',
        async (it: Stage, id: string) => {
          await it.change(id, { status: 'inactive' })
          await it.change(id, { status: 'active' })
        },
      ],
      ['is deleted', (it: Stage, id: string) => it.client.call(api.trustPolicies.remove, { params: { id } })],
    ])('ends at once when its policy %s', async (_what, end) => {
      const stage = await start(open)
      const { id } = await stage.create()
      const job = await stage.signIn()
      await listKeys(job)
      await end(stage, id)
      await expect(listKeys(job)).rejects.toEqual(cut)
    })

    it('continues when another run signs in with the same policy', async () => {
      const { create, signIn } = await start(open)
      await create()
      const job = await signIn()
      await signIn()
      await listKeys(job)
    })

    it('ends for good when its organization is suspended', async () => {
      const { create, signIn, system, bakery } = await start(open)
      await create()
      const job = await signIn()
      const set = (status: 'suspended' | 'active') =>
        system.call(api.orgs.update, { params: { id: bakery.id }, body: { status } })
      await set('suspended')
      await expect(listKeys(job)).rejects.toEqual(cut)
      await set('active')
      await expect(listKeys(job)).rejects.toEqual(cut)
      await listKeys(await signIn())
    })

    it('is not interchangeable with a session of a person', async () => {
      const { create, exchange, tokenOf, service, clock, world, signIn } = await start(open)
      const { id } = await create()
      const { accessToken } = await exchange(await tokenOf())
      await expect(service.client(accessToken).call(api.auth.me)).rejects.toEqual(forbidden)
      const refresh = service.client().call(api.auth.refresh, { body: { refreshToken: accessToken } })
      await expect(refresh).rejects.toMatchObject({ status: 401 })
      const secret = new TextEncoder().encode(testSecrets.JWT_SECRET)
      const { payload } = await jwtVerify(accessToken, secret, { currentDate: new Date(clock()) })
      expect(payload).toMatchObject({ type: 'workload', sub: id, permissions: releases.permissions })
      const resign = (change: object, key = secret) =>
        new SignJWT({ ...payload, ...change }).setProtectedHeader({ alg: 'HS256' }).sign(key)
      const stranger = new TextEncoder().encode('some other secret of more than 32 characters')
      for (const forged of [
        await resign({ type: 'access' }),
        await resign({ aud: 'service-api' }),
        await resign({ ver: 2 }),
        await resign({ org: world.orgs.garage.id }),
        await resign({}, stranger),
      ]) {
        await expect(service.client(forged).call(keys.list)).rejects.toEqual(cut)
      }
      const own = workloadTokens(testSecrets.JWT_SECRET)
      expect(await own.verify(world.tokens.bakery, new Date(clock()))).toBeUndefined()
      await listKeys(await signIn())
    })

    it('counts against the request limit of its policy', async () => {
      const { create, exchange, tokenOf, service, clock, outside } = await start(open)
      await create()
      const env = { RATE_LIMIT_BEARER: '2/60' }
      const strict = await serviceOn(service, { clock, outside, env })
      const signIn = async () => strict.client((await exchange(await tokenOf(), {}, strict)).accessToken)
      const job = await signIn()
      await listKeys(job)
      await listKeys(await signIn())
      await expect(listKeys(job)).rejects.toMatchObject({ status: 429, code: 'rate_limited' })
    })
  })

  it('explain shows what a workload may do', async () => {
    const { client } = await start(open)
    const ask = async (method: 'GET' | 'POST', path: string, workloadPermissions: string) => {
      const query = { method, path, workloadPermissions }
      const { allowed, code, reason } = await client.call(api.permissions.explain, { query })
      return [allowed, code, reason]
    }
    expect(await ask('POST', '/enrollment-keys', 'organizations:write')).toEqual([
      true,
      null,
      'The trust policy names organizations:write',
    ])
    expect(await ask('POST', '/enrollment-keys', 'organizations:read')).toEqual([
      false,
      'forbidden',
      'The trust policy does not name organizations:write',
    ])
    expect(await ask('POST', '/api-keys', 'organizations:write')).toEqual([
      false,
      'forbidden',
      'It is not open to workloads',
    ])
    expect(await ask('POST', '/webhooks', 'organizations:write')).toEqual([
      false,
      'forbidden',
      'It is open to workloads in files alone',
    ])
  })
})

type Stage = Awaited<ReturnType<typeof start>>

it('every entry that is open to workloads requires a permission, except the one that names the caller', () => {
  const { me } = api.auth
  expect((me as Endpoint).access).toMatchObject({ workload: false })
  const opened = entriesOf(api).filter(({ entry: { access } }) => access.who === 'user' && access.workload)
  const without = opened.filter(({ entry: { access } }) => access.who === 'user' && !access.permission)
  expect(without.map(({ name }) => name)).toEqual(['auth.caller'])
  expect(opened.filter(({ entry }) => isMutation(entry)).map(({ name }) => name)).toContain(
    'enrollmentKeys.create',
  )
  expect(run.aud).toBe(releases.audience)
})
