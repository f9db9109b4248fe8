import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { heartbeat } from '../../src/agents/heartbeats.ts'
import { agentAuthenticator } from '../../src/agents/principal.ts'
import { api } from '../../src/api.ts'
import type { Storage } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { begin } from '../devices/device-fixture.ts'
import { listen } from '../events/listener.ts'
import { testClock } from '../harness.ts'

const metrics = { cpuPercent: 12.5, ramPercent: 40, ramUsedMb: 9000, diskPercent: 1, diskUsedGb: 2.25 }
const usual = { status: 'ok', agentVersion: '0.1.0', metrics, uptime: 60 } as const

/** Heartbeats, most of which repeat the previous state. */
const beats = fc.record(
  {
    agentVersion: fc.constantFrom('0.1.0', '0.1.0', '0.1.0', '0.2.0'),
    metrics: fc.option(
      fc.record(
        {
          cpuPercent: fc.double({ min: 0, max: 100, noNaN: true }),
          processCount: fc.nat(1000),
          ramUsedMb: fc.nat(),
        },
        { requiredKeys: [] },
      ),
      { nil: undefined, freq: 8 },
    ),
    hostname: fc.constantFrom('till', 'till', 'till', 'other'),
    lastUser: fc.constantFrom('ada', 'ada', 'bob'),
    uptime: fc.nat(10_000_000),
    isHeadless: fc.boolean(),
    autoUpdate: fc.constantFrom(true, true, false),
  },
  { requiredKeys: ['agentVersion', 'metrics'] },
)
/** Changes of the device between them. */
const states = fc.constantFrom('online', 'online', 'online', 'offline', 'maintenance', 'updating')

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const stage = await begin(open, { clock })
    const rowOf = async (id: string) => {
      const row = await stage.service.storage.read
        .selectFrom('devices')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      const { id: _, agent_id, token_hash, watchdog_token_hash, ...rest } = row
      return rest
    }
    const received = await listen(stage.service, stage.bakery.id)
    /** The events of a device since it enrolled. */
    const eventsOf = async (id: string) =>
      (await received())
        .filter(({ type, data }) => data.deviceId === id && /^device\.(?!enrolled)/.test(type))
        .map(({ type, data }) => [type, data.fields])
    return { ...stage, clock, rowOf, eventsOf }
  }

  describe('a heartbeat', () => {
    it('has the same effect and reply whether it is stored in a batch or alone', async () => {
      const { service, enroll, clock, rowOf, eventsOf } = await start()
      const { storage } = service
      const [batched, alone] = [await enroll('till'), await enroll('till')]
      const setTo = (status: string) =>
        storage.write((tx) =>
          tx
            .updateTable('devices')
            .set({ status })
            .where('id', 'in', [batched.deviceId, alone.deviceId])
            .execute(),
        )
      const beatAlone = async (body: typeof usual) => {
        const caller = await agentAuthenticator(storage)(alone.agentId, alone.authToken, { now: clock() })
        const source = { ip: '127.0.0.1', userAgent: null, now: clock() }
        const telling = { trustKeys: [], agentTokenDays: 30, emitsNow: () => true }
        return storage.write((tx) => heartbeat(tx, caller, body, source, telling), { unsynced: true })
      }
      const step = fc.tuple(beats, fc.option(states, { freq: 2 }))
      for (const [said, state] of fc.sample(step, { numRuns: 60, seed: 8 })) {
        clock.forward(60)
        if (state !== null) await setTo(state)
        const body = { status: 'ok', ...said } as unknown as typeof usual
        const params = { id: batched.agentId }
        const reply = await service.client(batched.authToken).call(api.agents.heartbeat, { params, body })
        expect({ ...reply, manifestTrustKeys: [] }).toEqual(await beatAlone(body))
        const [{ enrollment_key_id: _, possible_replacement_of: __, ...one }, other] = [
          await rowOf(batched.deviceId),
          await rowOf(alone.deviceId),
        ]
        expect(other).toMatchObject(one)
      }
      expect(await eventsOf(batched.deviceId)).toEqual(await eventsOf(alone.deviceId))
    })

    it('of each of many concurrent agents is stored, in a few shared transactions', async () => {
      const { service, enroll, clock } = await start()
      const agents: Awaited<ReturnType<typeof enroll>>[] = []
      for (let n = 0; n < 20; n++) agents.push(await enroll(`till-${n}`))
      const beat = ({ agentId, authToken }: (typeof agents)[number], uptime: number) =>
        service
          .client(authToken)
          .call(api.agents.heartbeat, { params: { id: agentId }, body: { ...usual, uptime } })
      await Promise.all(agents.map((agent) => beat(agent, 1)))
      clock.forward(60)
      const writes = writeCounter(service.storage)
      await Promise.all(agents.flatMap((agent, n) => [beat(agent, 1000 + n), beat(agent, 1000 + n)]))
      expect(writes()).toBeLessThan(40)
      const rows = await service.storage.read
        .selectFrom('devices')
        .select(['agent_id', 'uptime_seconds', 'last_seen_at', 'cpu_percent'])
        .where(
          'agent_id',
          'in',
          agents.map(({ agentId }) => agentId),
        )
        .execute()
      const last_seen_at = clock()
      expect(new Map(rows.map(({ agent_id, ...row }) => [agent_id, row]))).toEqual(
        new Map(
          agents.map(({ agentId }, n) => [
            agentId,
            { uptime_seconds: 1000 + n, last_seen_at, cpu_percent: 12.5 },
          ]),
        ),
      )
    })

    it('brings back a device that was marked offline meanwhile, with a device.online event', async () => {
      const { service, enroll, eventsOf, show, clock } = await start()
      const { agentId, authToken, deviceId } = await enroll('till')
      const beat = () =>
        service.client(authToken).call(api.agents.heartbeat, { params: { id: agentId }, body: usual })
      await beat()
      clock.forward(60)
      // Between authentication and storage.
      beforeNextWrite(service.storage, (tx) =>
        tx.updateTable('devices').set({ status: 'offline' }).where('id', '=', deviceId).execute(),
      )
      await beat()
      expect(await show(deviceId)).toMatchObject({ status: 'online', lastSeenAt: clock() })
      expect((await eventsOf(deviceId)).map(([type]) => type)).toContain('device.online')
    })

    it('brings an offline device back once, however many come at the same moment', async () => {
      const { service, enroll, eventsOf } = await start()
      const { agentId, authToken, deviceId } = await enroll('till')
      const client = service.client(authToken)
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ status: 'offline' }).where('id', '=', deviceId).execute(),
      )
      const beat = () => client.call(api.agents.heartbeat, { params: { id: agentId }, body: usual })
      await Promise.all(Array.from({ length: 8 }, beat))
      const onlineEvents = (await eventsOf(deviceId)).filter(([type]) => type === 'device.online')
      expect(onlineEvents).toHaveLength(1)
    })
  })
})

/** Counts the writes from now on. */
function writeCounter(storage: Storage): () => number {
  const { write } = storage
  let count = 0
  storage.write = (work, options) => {
    count += 1
    return write(work, options)
  }
  return () => count
}

/** Every write waits for it: the next one may be one of a background loop. */
function beforeNextWrite(storage: Storage, first: Parameters<Storage['write']>[0]): void {
  const { write } = storage
  let done: Promise<unknown> | undefined
  storage.write = async (work, options) => {
    done ??= write(first)
    await done
    return write(work, options)
  }
}
