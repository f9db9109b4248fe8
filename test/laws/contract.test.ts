import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { replyWriter } from '../../daemon/reply-writer.ts'
import { api } from '../../src/api.ts'
import { type Contract, type Endpoint, entriesOf, userAccess } from '../../src/core/endpoint.ts'
import { secret, text } from '../../src/core/schema.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { callOf, unknownRecords } from './calls.ts'
import { faultsOf } from './contract.ts'
import { documentedActions } from './documented-actions.ts'
import { fieldsOf, mutating } from './fields.ts'
import { serveContract } from './serve-contract.ts'
import { Line } from './wire.ts'

const entries = entriesOf(api)

describe('the contract', () => {
  it('follows all rules for its entries', () => {
    expect(entries.length).toBeGreaterThan(25)
    expect(faultsOf(api)).toEqual([])
  })

  it('has a reply that can be serialized for each entry', () => {
    const failing = entries.filter(({ entry }) => {
      try {
        return !replyWriter(entry.reply)
      } catch {
        return true
      }
    })
    expect(failing.map(({ name }) => name)).toEqual([])
  })

  it('uses the documented audit actions', () => {
    const named = mutating(api).flatMap(({ entry }) => {
      const wanted = documentedActions[`${entry.method} ${entry.path}`]
      const action = entry.audit && 'action' in entry.audit ? entry.audit.action : 'nothing'
      return wanted === undefined ? [] : [{ call: `${entry.method} ${entry.path}`, action, wanted }]
    })
    expect(named.length).toBeGreaterThan(6)
    expect(named.filter(({ action, wanted }) => action !== wanted)).toEqual([])
  })

  it('uses a documented audit action for nothing else', () => {
    const listed = Object.entries(documentedActions)
    const elsewhere = mutating(api).filter(({ entry: { method, path, audit } }) => {
      const calls = listed.filter(([, action]) => audit && 'action' in audit && audit.action === action)
      return calls.length > 0 && !calls.some(([call]) => call === `${method} ${path}`)
    })
    expect(elsewhere.map(({ name }) => name)).toEqual([])
  })

  it('asks for each list that may span organizations, apart from what is read at once', () => {
    const short = {
      'roles.list': 'of one tenant',
      'deadLetters.list': 'of the system, and bounded by the table',
      'agentRollouts.list': 'of the service',
      'agentVersions.list': 'of the service',
    }
    const isList = ({ method, path, query, access }: Endpoint) =>
      method === 'GET' &&
      access.who === 'user' &&
      !path.includes(':') &&
      fieldsOf(query).some(({ path: [field] }) => field === 'page')
    const plain = entries.filter(({ entry }) => isList(entry) && !entry.readQuery).map(({ name }) => name)
    expect(plain.sort()).toEqual(Object.keys(short).sort())
  })

  it('has examples to which needed IDs can be added', () => {
    const { body } = callOf(api.sites.create, unknownRecords())
    expect(api.sites.create.body.parse(body)).toMatchObject({
      name: 'Main Office',
      orgId: expect.any(String),
    })
  })
})

const entry = (change: Partial<Endpoint>): Endpoint => ({
  method: 'POST',
  path: '/things',
  idempotencyKey: 'honored',
  summary: 'Make a thing',
  tag: 'Things',
  access: userAccess({ permission: 'sites:write' }),
  body: z.strictObject({ name: text(10) }),
  reply: z.object({ name: z.string() }),
  audit: { action: 'thing.create', resource: 'site' },
  example: { name: 'one' },
  ...change,
})

/** A public read-only entry. */
const shown: Endpoint = {
  method: 'GET',
  path: '/things',
  summary: 'Show things',
  tag: 'Things',
  access: { who: 'public' },
  reply: z.unknown(),
}

const without = (key: keyof Endpoint): Endpoint => {
  const { [key]: _, ...rest } = entry({})
  return rest as Endpoint
}

/** A contract with one fault, and the expected message. */
const wrong: [what: string, contract: Contract, fault: string][] = [
  ['two entries with one path', { a: { x: entry({}), y: entry({}) } }, 'POST /things is taken by a.x'],
  [
    'two paths that differ in a parameter only',
    { a: { x: entry({ path: '/t/:id' }), y: entry({ path: '/t/:name' }) } },
    'POST /t/: is taken by a.x',
  ],
  [
    'two entries with one operation ID',
    { a: { b_c: entry({}) }, a_b: { c: entry({ path: '/other' }) } },
    'operation id a_b_c is taken',
  ],
  ['a change without audit', { a: { x: without('audit') } }, 'says neither what it audits nor why not'],
  [
    'an empty reason',
    { a: { x: entry({ audit: { unaudited: '' } }) } },
    'says neither what it audits nor why not',
  ],
  [
    'an audited read without a throttle',
    { a: { x: { ...without('body'), method: 'GET' } } },
    'audits a read, but not how often',
  ],
  [
    'a POST that does not declare its Idempotency-Key',
    { a: { x: without('idempotencyKey') } },
    'says nothing on Idempotency-Key',
  ],
  [
    'a session in a reply that is kept for replay',
    { a: { x: entry({ session: 'starts' }) } },
    'would give a session out again',
  ],
  [
    'a creation without an Idempotency-Key',
    { a: { x: entry({ status: 201, idempotencyKey: { refused: 'repeatable' } }) } },
    'creates, and knows no Idempotency-Key',
  ],
  [
    'kept replies of a public entry without a limit',
    { a: { x: entry({ access: { who: 'public' } }) } },
    'keeps replies for strangers without a limit',
  ],
  ['a body without an example', { a: { x: without('example') } }, 'body without an example'],
  [
    'an example that is not valid',
    { a: { x: entry({ example: { name: 'much too long for it' } }) } },
    'its example is not valid',
  ],
  [
    'an ID without a kind of record',
    { a: { x: entry({ body: z.strictObject({ siteId: z.guid().optional() }) }) } },
    'body.siteId is an id of no kind',
  ],
  [
    'IDs in a list without a kind of record',
    { a: { x: entry({ body: z.strictObject({ siteIds: z.array(z.guid()).optional() }) }) } },
    'body.siteIds.0 is an id of no kind',
  ],
  [
    'an unmarked secret',
    { a: { x: entry({ body: z.strictObject({ name: text(10), newPassword: text(10).optional() }) }) } },
    'body.newPassword looks like a secret and is not marked',
  ],
  [
    'an unmarked secret in a reply',
    { a: { x: entry({ reply: z.object({ inner: z.array(z.object({ apiKey: z.string() })) }) }) } },
    'reply.inner.0.apiKey looks like a secret and is not marked',
  ],
  [
    'a stored hash in a reply',
    { a: { x: entry({ reply: z.object({ tokenHash: secret(z.string()) }) }) } },
    'reply.tokenHash is not for anyone to see',
  ],
  [
    'an unknown permission',
    { a: { x: entry({ access: userAccess({ permission: 'sites:paint' as never }) }) } },
    'needs sites:paint, which is not in the catalog',
  ],
  [
    'a body that takes anything',
    { a: { x: entry({ body: z.object({ name: text(10) }) }) } },
    'body takes unknown fields',
  ],
  [
    'a text without a maximum length',
    { a: { x: entry({ body: z.strictObject({ name: text(10), note: z.string().optional() }) }) } },
    'body.note may be of any length',
  ],
  [
    'a text that may hold a NUL',
    { a: { x: entry({ body: z.strictObject({ name: text(10), note: z.string().max(9).optional() }) }) } },
    'body.note takes what cannot be stored',
  ],
  [
    'an object that may hold a NUL',
    { a: { x: entry({ query: z.strictObject({ like: z.record(z.string(), z.unknown()).optional() }) }) } },
    'query.like takes what cannot be stored',
  ],
  [
    'a parameter that the path does not have',
    { a: { x: entry({ path: '/t/:id' }) } },
    'the path and params differ',
  ],
]

describe('the check of the contract', () => {
  it.each(wrong)('finds %s', (_, contract, fault) => {
    expect(faultsOf(contract).join('\n')).toContain(fault)
  })

  it('accepts a correct entry', () => {
    expect(faultsOf({ a: { x: entry({}) } })).toEqual([])
  })

  it('includes nested fields, lists and unions', () => {
    const schema = z.strictObject({
      a: z.array(z.strictObject({ b: text(1) })).optional(),
      c: z.union([z.strictObject({ d: text(1) }), z.null()]),
    })
    expect(fieldsOf(schema).map(({ path }) => path.join('.'))).toEqual(['a', 'a.0', 'a.0.b', 'c', 'c.d'])
  })
})

onEveryDatabase((_, open) => {
  describe('a running service', () => {
    it('answers at every entry, and has a handler for it', async () => {
      const service = await startService(open)
      const line = new Line(service.url)
      for (const { name, entry: one } of entries) {
        const path = `/api/v1${one.path.replace(/:\w+/g, 'x')}`
        const { status, text: said } = await line.send({ method: one.method, path })
        // Called without credentials or input, but the route exists.
        expect([name, status, said]).not.toEqual([name, 404, expect.any(String)])
        expect([name, status < 500]).toEqual([name, true])
      }
      await line.close()
    })

    it('does not start with an entry that has no handler', async () => {
      const service = await startService(open)
      await expect(serveContract(service, { a: { x: entry({}) } }, { a: {} })).rejects.toThrow(
        'a.x has no handler',
      )
    })

    it('never sends a field that the reply does not declare', async () => {
      const service = await startService(open)
      const reply = z.object({ id: z.string(), inner: z.array(z.object({ name: z.string() })) })
      const contract: Contract = { a: { x: { ...shown, reply } } }
      const row = { id: '1', keyHash: 'leaked', inner: [{ name: 'a', passwordHash: 'leaked' }] }
      const house = await serveContract(service, contract, { a: { x: async () => row } })
      const line = new Line(house.url)
      const { text: said } = await line.send({ method: 'GET', path: '/api/v1/things' })
      expect(JSON.parse(said)).toEqual({ id: '1', inner: [{ name: 'a' }] })
      await line.close()
      await house.close()
    })
  })
})
