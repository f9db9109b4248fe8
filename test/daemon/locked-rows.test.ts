import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld, type Org } from '../world.ts'

/** On SQLite writes run one at a time: there are no locked rows. */
describe('a row that another transaction keeps locked', () => {
  /** A service, and a session of somebody else that holds the row of a device. */
  const locked = async (env: Record<string, string> = {}) => {
    const service = await startService(() => openMigrated('postgres'), {
      env: { DATABASE_STATEMENT_TIMEOUT_MS: '2000', OFFLINE_AFTER_SECONDS: '86400', ...env },
    })
    const { bakery: bad, garage: good } = (await buildWorld(service)).orgs
    const beat = ({ agentId, agentToken }: Org) =>
      service.client(agentToken).call(api.agents.heartbeat, {
        params: { id: agentId },
        body: { status: 'ok', agentVersion: '0.1.0', metrics: { cpuPercent: 1 } },
      })
    // The next heartbeats report nothing new: those are written together.
    for (const one of [bad, good]) await beat(one)
    const other = new pg.Client({ connectionString: service.databaseUrl! })
    await other.connect()
    onTestFinished(() => other.end())
    await other.query('begin')
    await other.query('select 1 from devices where id = $1 for update', [bad.deviceId])
    return { service, bad, good, beat, unlock: () => other.query('rollback') }
  }

  it('fails the heartbeat of its device alone, which succeeds once it is free', async () => {
    const { bad, good, beat, unlock } = await locked()
    const beats = await Promise.allSettled([good, bad, good, bad, good, good].map(beat))
    const refused = { status: 'rejected', reason: { status: 503, code: 'unavailable' } }
    const done = { status: 'fulfilled' }
    expect(beats).toMatchObject([done, refused, done, refused, done, done])
    await unlock()
    await beat(bad)
  })

  it('keeps no other device from being set offline', async () => {
    const { service, bad, good, unlock } = await locked()
    const { storage } = service
    const later = addSeconds(systemClock(), 90_000)
    const check = () =>
      checkLiveness(storage, { offlineAfterSeconds: 86_400 }, later).catch(
        (error: { code?: string }) => error.code,
      )
    const offline = async () => {
      const rows = storage.read.selectFrom('devices').select('id').where('status', '=', 'offline')
      return (await rows.execute()).map(({ id }) => id)
    }
    expect(await check()).toBe('55P03')
    expect(await offline()).toContain(good.deviceId)
    expect(await offline()).not.toContain(bad.deviceId)
    await unlock()
    await check()
    expect(await offline()).toContain(bad.deviceId)
  })
})
