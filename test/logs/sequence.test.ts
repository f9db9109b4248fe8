import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { insertDiagnosticLogs } from '../../src/logs/diagnostic/store.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { placedOf } from './sequence.ts'

const naming = (path: string) =>
  expect.objectContaining({
    status: 400,
    details: expect.arrayContaining([expect.objectContaining({ path })]),
  })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const agent = service.client(bakery.agentToken)
    const admin = service.client(world.tokens.bakery)
    const params = { id: bakery.agentId }
    const device = { id: bakery.deviceId }
    const timestamp = '2026-03-01T11:00:00.000Z'
    return {
      service,
      world,
      bakery,
      admin,
      device,
      say: (...messages: string[]) => {
        const level = 'info' as const
        const logs = messages.map((message) => ({ timestamp, level, component: 'ws', message }))
        return agent.call(api.diagnosticLogs.submit, { params, body: { logs } })
      },
      write: (...messages: string[]) => {
        const more = { timestamp, level: 'info', category: 'system', source: 'kernel' } as const
        const events = messages.map((message) => ({ ...more, message, eventId: message }))
        return agent.call(api.eventLogs.submit, { params, body: { events } })
      },
      said: (query: Record<string, unknown>) =>
        admin.call(api.diagnosticLogs.list, { params: device, query: query as never }),
      written: (query: Record<string, unknown>) =>
        admin.call(api.eventLogs.list, { params: device, query: query as never }),
    }
  }
  type Page = Awaited<ReturnType<Awaited<ReturnType<typeof start>>['said']>>
  const seen = ({ data }: { data: { seq: number; message: string }[] }) =>
    data.map(({ seq, message }) => [seq, message])

  describe('the sequence of logs', () => {
    it('is shared by both kinds, and logs are read from a position on, oldest first', async () => {
      const { say, write, said, written } = await start()
      await say('a', 'b')
      await write('c')
      await say('d')
      const first = await said({ after: '0' })
      expect(seen(first)).toEqual([
        [1, 'a'],
        [2, 'b'],
        [4, 'd'],
      ])
      expect(first).toMatchObject({ head: 4, pagination: { nextCursor: null } })
      expect(seen(await said({ after: '2' }))).toEqual([[4, 'd']])
      expect(seen(await written({ after: '0' }))).toEqual([[3, 'c']])
      expect(await written({ after: '3' })).toMatchObject({ data: [], head: 4 })
      // Lists without a position are as before, and contain the head.
      expect(await written({})).toMatchObject({ head: 4, pagination: { total: 1 } })
    })

    it('can be filtered and paged like any list', async () => {
      const { say, said } = await start()
      await say(...Array.from({ length: 25 }, (_, n) => `${n % 5 === 0 ? 'odd' : 'even'} ${n}`))
      let page: Page = await said({ after: '3', limit: '2', search: 'odd' })
      expect(seen(page)).toEqual([
        [6, 'odd 5'],
        [11, 'odd 10'],
      ])
      page = await said({ after: '3', limit: '2', search: 'odd', cursor: page.pagination.nextCursor })
      expect(seen(page)).toEqual([
        [16, 'odd 15'],
        [21, 'odd 20'],
      ])
      expect(page.pagination.nextCursor).toBeNull()
      expect(seen(await said({ after: '0', limit: '10', page: '3' }))).toHaveLength(5)
      await expect(said({ after: '-1' })).rejects.toEqual(naming('query.after'))
      await expect(said({ after: 'x' })).rejects.toEqual(naming('query.after'))
      await expect(said({ after: '0', cursor: 'x' })).rejects.toEqual(naming('query.cursor'))
    })

    it('shows nothing after an entry that is not committed yet', async () => {
      const { service, bakery, said } = await start()
      const { storage } = service
      const one = (message: string) => ({
        id: newId(),
        deviceId: bakery.deviceId,
        orgId: bakery.id,
        message,
        level: 'info' as const,
        timestamp: '2026-03-01T11:00:00.000Z',
        component: 'ws',
        fields: null,
        agentVersion: null,
        createdAt: '2026-03-01T11:00:00.000Z',
      })
      const slow = Promise.withResolvers<void>()
      const taken = Promise.withResolvers<void>()
      const early = storage.write(async (tx) => {
        await insertDiagnosticLogs(tx, await placedOf(tx, bakery, [one('early')]))
        taken.resolve()
        await slow.promise
      })
      await taken.promise
      const late = storage.write(async (tx) =>
        insertDiagnosticLogs(tx, await placedOf(tx, bakery, [one('late')])),
      )
      for (const _ of [1, 2, 3]) expect(await said({ after: '0' })).toMatchObject({ data: [], head: 0 })
      slow.resolve()
      await Promise.all([early, late])
      expect(seen(await said({ after: '0' }))).toEqual([
        [1, 'early'],
        [2, 'late'],
      ])
    })

    it('gives a reader each entry once and in order, during concurrent submissions', async () => {
      const { say, write, said, written } = await start()
      const names = Array.from({ length: 40 }, (_, n) => [`${n}/a`, `${n}/b`, `${n}/c`])
      let coming = true
      // Fewer at once than a device may have in progress.
      const remaining = names.entries()
      const lanes = Array.from({ length: 12 }, async () => {
        for (const [n, some] of remaining) await (n % 2 ? say(...some) : write(...some))
      })
      const all = Promise.all(lanes).finally(() => {
        coming = false
      })
      const follow = async (list: typeof said | typeof written) => {
        const got: [number, string][] = []
        for (let last = false; !last; ) {
          last = !coming
          const after = String(got.at(-1)?.[0] ?? 0)
          got.push(...(seen((await list({ after, limit: '7' })) as Page) as [number, string][]))
          if (last) last = got.at(-1)?.[0] === Number(after) || String(got.at(-1)?.[0] ?? 0) === after
        }
        return got
      }
      const [ofAgent, ofMachine] = await Promise.all([follow(said), follow(written)])
      await all
      for (const got of [ofAgent, ofMachine]) {
        const seqs = got.map(([seq]) => seq)
        expect(seqs).toEqual(seqs.toSorted((a, b) => a - b))
        expect(new Set(seqs).size).toBe(seqs.length)
      }
      const messages = [...ofAgent, ...ofMachine].map(([, message]) => message)
      expect(messages.toSorted()).toEqual(names.flat().toSorted())
      expect((await said({})).head).toBe(120)
    })
  })
})
