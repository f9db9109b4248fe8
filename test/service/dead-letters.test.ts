import { describe, expect, it } from 'vitest'
import { DeadLetterWatch } from '../../daemon/dead-letter-watch.ts'
import { api } from '../../src/api.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import { insertDeadLetter, maxDeadLetters } from '../../src/storage/dead-letters.ts'
import { happening } from '../audit/rows.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { failWrites } from '../laws/failing-writes.ts'
import { metricValues } from '../metric-values.ts'
import { addWebhook, buildWorld } from '../world.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  async function setUp() {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { storage } = service
    const client = service.client(world.tokens.system)
    const orgId = world.orgs.bakery.id
    const happen = (action: string) =>
      storage.write((tx) => recordAudit(tx, toDraftEntry(happening(orgId, { action }), systemClock())))
    const list = async (query = {}) => (await client.call(api.deadLetters.list, { query })).data
    const on = (number: number) => ({ params: { number: String(number) as never } })
    const audited = async (chain: string) => {
      await sealPending(storage)
      const rows = storage.read.selectFrom('audit_logs').select(['action', 'canonical']).orderBy('seq')
      return (await rows.where('chain', '=', chain).execute()).map(({ action, canonical }) => ({
        action,
        details: JSON.parse(canonical).details as Record<string, unknown>,
      }))
    }
    return { ...world, service, storage, client, orgId, happen, list, on, audited }
  }

  describe('a dead-lettered audit entry', () => {
    it('is listed and shown, and can be retried until it is written, with audit entries', async () => {
      const { storage, client, orgId, happen, list, on, audited } = await setUp()
      const cure = await failWrites(storage, 'insert', 'audit_logs', `new.action = 'poisoned'`)
      await happen('poisoned')
      await sealPending(storage)
      const [letter, ...more] = await list({ source: 'audit_logs' })
      expect(more).toEqual([])
      expect(await list({ source: 'events' })).toEqual([])
      const shown = await client.call(api.deadLetters.show, on(letter!.number))
      expect(shown).toEqual({ ...letter, entry: expect.stringContaining('"poisoned"') })
      expect(letter).toMatchObject({ source: 'audit_logs', orgId, bytes: Buffer.byteLength(shown.entry) })
      // Its obstacle still exists.
      await client.call(api.deadLetters.retry, on(letter!.number))
      await sealPending(storage)
      const [again] = await list()
      expect(again!.number).toBeGreaterThan(letter!.number)
      await cure()
      expect(await client.call(api.deadLetters.retry, on(again!.number))).toEqual({
        success: true,
        source: 'audit_logs',
      })
      const chain = await audited(orgId)
      expect(chain.slice(-3).map(({ action }) => action)).toEqual([
        'audit.entry.set_aside',
        'audit.entry.set_aside',
        'poisoned',
      ])
      expect(await list()).toEqual([])
      const own = (await audited('system')).filter(({ action }) => action.startsWith('dead_letter.'))
      expect(own.map(({ action }) => action)).toEqual([
        'dead_letter.read',
        'dead_letter.retry',
        'dead_letter.retry',
      ])
      const { sha256 } = chain.at(-2)!.details
      expect(own[2]!.details).toMatchObject({ source: 'audit_logs', organizationId: orgId, sha256 })
    })

    it('that is invalid stays until it is deleted', async () => {
      const { storage, client, list, on, audited } = await setUp()
      const junk = { chain: 'nowhere', entry: '{"half' }
      await storage.write((tx) => tx.insertInto('outbox').values(junk).execute())
      await sealPending(storage)
      const [letter] = await list()
      await expect(client.call(api.deadLetters.retry, on(letter!.number))).rejects.toEqual(
        failing(409, 'conflict'),
      )
      expect(await list()).toHaveLength(1)
      await client.call(api.deadLetters.remove, on(letter!.number))
      expect(await list()).toEqual([])
      for (const entry of [api.deadLetters.show, api.deadLetters.retry, api.deadLetters.remove]) {
        const gone = client.call(entry as typeof api.deadLetters.show, on(letter!.number))
        await expect(gone).rejects.toEqual(failing(404, 'not_found'))
      }
      expect((await audited('system')).at(-1)).toMatchObject({ action: 'dead_letter.delete' })
    })
  })

  it('a dead-lettered event is delivered on retry, while its webhook exists', async () => {
    const { service, storage, client, orgId, list, on } = await setUp()
    const [hook, other] = [
      await addWebhook(service, orgId, 'stuck', ['device.offline']),
      await addWebhook(service, orgId, 'gone', ['device.offline']),
    ]
    const cure = await failWrites(storage, 'insert', 'webhook_deliveries', `new.event = 'device.offline'`)
    const id = newId()
    const happened = '2026-01-31T12:00:00.000Z'
    const event = { id, org_id: orgId, type: 'device.offline', data: '{"a":"ä"}', created_at: happened }
    await storage.write((tx) => tx.insertInto('events').values(event).execute())
    await expect.poll(() => list(), { timeout: 10_000 }).toHaveLength(2)
    await cure()
    await client.call(api.webhooks.remove, { params: { id: other.id } })
    const letters = await Promise.all(
      (await list()).map(({ number: letter }) => client.call(api.deadLetters.show, on(letter))),
    )
    const of = (webhookId: string) => on(letters.find(({ entry }) => entry.includes(webhookId))!.number)
    await expect(client.call(api.deadLetters.retry, of(other.id))).rejects.toEqual(failing(404, 'not_found'))
    await client.call(api.deadLetters.retry, of(hook.id))
    const { data } = await client.call(api.webhookDeliveries.list, { params: { id: hook.id } })
    expect(data).toMatchObject([{ event: 'device.offline', eventId: id, payload: { a: 'ä' } }])
    expect(await list()).toHaveLength(1)
  })

  it('an entry that only a newer release can write is shown, but not retried', async () => {
    const { storage, client, orgId, on } = await setUp()
    const letter = { source: 'invoices' as never, orgId, entry: '{}', reason: 'no', now: systemClock() }
    const number = (await storage.write((tx) => insertDeadLetter(tx, letter)))!
    expect(await client.call(api.deadLetters.show, on(number))).toMatchObject({ source: 'invoices' })
    await expect(client.call(api.deadLetters.retry, on(number))).rejects.toEqual(failing(409, 'conflict'))
  })

  it('dead letters are accessible in system scope only', async () => {
    const { service, storage, tokens, orgId, on } = await setUp()
    const letter = { source: 'events' as const, orgId, entry: '{}', reason: 'no', now: systemClock() }
    const id = (await storage.write((tx) => insertDeadLetter(tx, letter)))!
    for (const token of [tokens.bakery, tokens.acme]) {
      const { show, retry, remove, list } = api.deadLetters
      const own = service.client(token)
      for (const entry of [show, retry, remove]) {
        const call = own.call(entry as typeof show, on(id))
        await expect(call).rejects.toEqual(failing(403, 'scope_not_allowed'))
      }
      await expect(own.call(list, {})).rejects.toEqual(failing(403, 'scope_not_allowed'))
    }
  })

  describe('the dead-letter table', () => {
    it('is bounded in rows: beyond them entries are lost, which the chain and metrics report', async () => {
      const { storage, orgId, happen, list, audited } = await setUp()
      const logged: unknown[] = []
      const log = { error: (...what: unknown[]) => logged.push(what) } as never
      const watch = new DeadLetterWatch(storage, systemClock, log)
      const row = { org_id: orgId, entry: '{}', reason: 'no', created_at: systemClock() }
      await storage.write(async (tx) => {
        for (let n = 0; n < maxDeadLetters.rows; n += 1000) {
          const rows = Array.from({ length: 1000 }, () => ({ source: 'audit_logs', ...row }))
          await tx.insertInto('set_aside').values(rows).execute()
        }
      })
      await watch.logNew()
      await failWrites(storage, 'insert', 'audit_logs', `new.action = 'poisoned'`)
      for (const action of ['poisoned', 'poisoned']) await happen(action)
      await sealPending(storage)
      await happen('after')
      const chain = await audited(orgId)
      expect(chain.slice(-3)).toMatchObject([
        ...[1, 2].map(() => ({
          action: 'audit.entry.set_aside',
          details: {
            setAside: null,
            entry: expect.stringContaining('"poisoned"'),
            sha256: expect.any(String),
          },
        })),
        { action: 'after' },
      ])
      // Entries of the other source have their own limit.
      const event = { source: 'events' as const, orgId, entry: '{}', reason: 'no', now: systemClock() }
      expect(await storage.write((tx) => insertDeadLetter(tx, event))).toBeGreaterThan(0)
      expect(await list({ source: 'events' })).toHaveLength(1)
      await watch.logNew()
      expect(logged).toEqual([
        [expect.objectContaining({ source: 'events' }), expect.stringContaining('svc dead-letters')],
        [{ source: 'audit_logs', lost: 2, reason: expect.any(String) }, expect.stringContaining('were lost')],
      ])
      expect(await watch.check()).toContain('audit_logs: 10000, events: 1, audit_logs lost: 2')
      const { registry, refresh } = watch.stored
      await refresh()
      const rows = await metricValues(registry, 'svc_set_aside_rows')
      expect(rows).toMatchObject({ audit_logs: maxDeadLetters.rows })
      expect(await metricValues(registry, 'svc_set_aside_lost_total')).toEqual({ audit_logs: 2, events: 0 })
    })

    it('is bounded in bytes', async () => {
      const { storage, orgId, list } = await setUp()
      const entry = 'ä'.repeat(2 ** 20)
      const letter = { source: 'events' as const, orgId, entry, reason: 'no', now: systemClock() }
      const max = { rows: 100, bytes: 5 * 2 ** 20 }
      const kept = []
      for (let n = 0; n < 4; n++) kept.push(await storage.write((tx) => insertDeadLetter(tx, letter, max)))
      expect(kept.map((id) => id !== undefined)).toEqual([true, true, false, false])
      expect(
        await storage.write((tx) => insertDeadLetter(tx, { ...letter, entry: '{}' }, max)),
      ).toBeGreaterThan(0)
      expect((await list()).map(({ bytes }) => bytes)).toEqual([2, 2 ** 21, 2 ** 21])
    })
  })
})
