import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { ConditionGroup } from '../../src/filters/contract.ts'
import { refreshDueGroups } from '../../src/groups/jobs.ts'
import { onEveryDatabase } from '../databases.ts'
import { addDevice } from '../groups/fleet.ts'
import { startService, testClock } from '../harness.ts'
import { deviceRow } from '../search/fleet.ts'
import { buildWorld } from '../world.ts'

const some = (conditions: ConditionGroup['conditions']): ConditionGroup => ({ operator: 'OR', conditions })

/** 199 patterns of 80 letters each. */
const hostile = some(
  Array.from({ length: 199 }, (_, n) => ({
    field: 'software.installed',
    operator: 'matches',
    value: `(?i)${'\\pL'.repeat(78)}${n}`,
  })),
)

/** The most expensive filter that is allowed. */
const dearest = some(
  Array.from({ length: 190 }, (_, n) => ({
    field: 'lastUser',
    operator: 'matches',
    value: `(?:x?[^y]*z.?){${((n % 29) % 5) + 2}}[a-z]${n % 29}$`,
  })),
)
const plain = some([{ field: 'hostname', operator: 'contains', value: 'kitchen' }])

const refused = {
  status: 422,
  code: 'filter_too_expensive',
  message: expect.stringMatching(/conditions\.\d+\.value: .*software\.installed: use at most 30, with fewer/),
}

onEveryDatabase((_, open) => {
  const start = async (env: Record<string, string> = {}) => {
    const clock = testClock()
    const service = await startService(open, { clock, env })
    const world = await buildWorld(service)
    const admin = service.client(world.tokens.bakery)
    const filter = (name: string, conditions = plain) =>
      admin.call(api.filters.create, { body: { name, conditions } })
    /** Stores conditions directly, as before there was a limit. */
    const make = (id: string, conditions: ConditionGroup) =>
      service.storage.write((tx) =>
        tx
          .updateTable('saved_filters')
          .set({ conditions: JSON.stringify(conditions) })
          .where('id', '=', id)
          .execute(),
      )
    const group = (name: string, filterId: string) =>
      admin.call(api.deviceGroups.create, { body: { name, type: 'dynamic', filterId } })
    return { clock, service, world, admin, filter, make, group }
  }

  describe('a filter that is too expensive', () => {
    it('is refused at once, wherever it is stored or run, and the error names its field', async () => {
      const { world, service, admin, filter, make, group } = await start()
      const { id } = await filter('kitchen')
      const params = { id }
      const viewer = service.client(world.tokens.bakeryViewer)
      const began = performance.now()
      const ways = [
        () => viewer.call(api.filters.preview, { body: { conditions: hostile } }),
        () => filter('hostile', hostile),
        () => admin.call(api.filters.update, { params, body: { conditions: hostile } }),
      ]
      for (const way of ways) await expect(way()).rejects.toMatchObject(refused)
      await make(id, hostile)
      const later = [() => viewer.call(api.filters.savedPreview, { params }), () => group('hostile', id)]
      for (const way of later) await expect(way()).rejects.toMatchObject(refused)
      expect(performance.now() - began).toBeLessThan(3000)
      // It can be viewed, repaired and deleted.
      expect(await admin.call(api.filters.show, { params })).toMatchObject({ conditions: hostile })
      await admin.call(api.filters.update, { params, body: { conditions: plain } })
      expect(await group('mended', id)).toMatchObject({ evaluationError: null })
    })

    it('is reported in the group it fills, which keeps its devices while others are refreshed', async () => {
      const { clock, service, world, admin, filter, make, group } = await start()
      await addDevice(service, world, world.orgs.bakery, 'kitchen-1')
      const [dear, good] = [await filter('dear'), await filter('good')]
      const [marked, other] = [await group('Marked', dear.id), await group('Other', good.id)]
      await make(dear.id, hostile)
      await addDevice(service, world, world.orgs.bakery, 'kitchen-2')
      const round = async (seconds: number) => {
        clock.forward(seconds)
        while (await refreshDueGroups({ storage: service.storage, clock }));
      }
      await round(60)
      const shown = (id: string) => admin.call(api.deviceGroups.show, { params: { id } })
      expect(await shown(marked.id)).toMatchObject({
        deviceCount: 1,
        evaluationError: expect.stringContaining('too expensive together'),
      })
      expect(await shown(other.id)).toMatchObject({ deviceCount: 2, evaluationError: null })
      await make(dear.id, plain)
      await round(60)
      expect(await shown(marked.id)).toMatchObject({ deviceCount: 1 })
      await round(840)
      expect(await shown(marked.id)).toMatchObject({ deviceCount: 2, evaluationError: null })
    })

    it('run repeatedly by one caller keeps nobody else waiting', async () => {
      const { clock, service, world, admin, filter, make, group } = await start({
        // A third of the time the query takes on a fast, idle machine.
        QUESTION_TIMEOUT_MS: '500',
        QUESTION_WAIT_MS: '200',
      })
      const { bakery, garage } = world.orgs
      const user = `${'xazé '.repeat(30)}.`
      for (let from = 0; from < 9000; from += 200) {
        const rows = Array.from({ length: 200 }, (_, n) => ({
          ...deviceRow({ orgId: bakery.id, hostname: `pc-${from + n}` }),
          last_user: `${user}${from + n}`,
        }))
        await service.storage.write((tx) => tx.insertInto('devices').values(rows).execute())
      }
      const viewer = service.client(world.tokens.bakeryViewer)
      const other = service.client(world.tokens.garage)
      const agent = service.client(garage.agentToken)
      const outcomes: string[] = []
      let isOver = false
      const asking = Array.from({ length: 12 }, async () => {
        while (!isOver) {
          const body = { conditions: dearest }
          const outcome = await viewer.call(api.filters.preview, { body }).then(
            () => 'answered',
            (error: { code: string; retryAfter?: number }) => `${error.code} ${error.retryAfter}`,
          )
          outcomes.push(outcome)
        }
      })
      await sleep(300)
      const took: number[][] = [[], [], []]
      for (let round = 0; round < 12; round++) {
        const asked = [
          () => other.call(api.devices.list, { query: {} }),
          () => other.call(api.devices.list, { query: { search: 'a' } }),
          () =>
            agent.call(api.agents.heartbeat, {
              params: { id: garage.agentId },
              body: { status: 'ok', agentVersion: '0.1.0' },
            }),
        ]
        for (const [kind, ask] of asked.entries()) {
          const began = performance.now()
          await ask()
          took[kind]!.push(performance.now() - began)
        }
        await sleep(100)
      }
      isOver = true
      await Promise.all(asking)
      const usual = took.map((times) => times.toSorted((a, b) => a - b)[times.length / 2]!)
      // The machine is shared: without limits each search would wait for several queries of the viewer.
      expect(Math.max(...usual)).toBeLessThan(1000)
      // A group with such a filter costs the others one query per 15 minutes.
      const { id } = await filter('slow')
      const slow = await group('Slow', id)
      await make(id, dearest)
      clock.forward(60)
      await refreshDueGroups({ storage: service.storage, clock })
      expect(await admin.call(api.deviceGroups.show, { params: { id: slow.id } })).toMatchObject({
        evaluationError: expect.stringContaining('longer than a query may'),
      })
      await expect(group('Slow as well', id)).rejects.toMatchObject({
        status: 503,
        code: 'question_too_slow',
      })
      expect(new Set(outcomes)).toEqual(new Set(['question_too_slow 30', 'too_many_questions 2']))
    })
  })
})
