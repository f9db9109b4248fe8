import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

inTurn((open) => {
  it('telemetry with characters that a database cannot store is cleaned, not refused', async () => {
    const service = await startService(open)
    const { tokens, orgs } = await buildWorld(service)
    const { agentId: id, agentToken, deviceId } = orgs.bakery
    const agent = service.client(agentToken)
    const user = service.client(tokens.bakery)
    const params = { id }
    const [odd, clean] = ['a\u0000b\ud800', 'a\ufffdb\ufffd']
    const at = { timestamp: '2026-01-31T12:00:00.000Z' }
    const event = {
      ...at,
      level: 'error',
      category: 'system',
      source: odd,
      eventId: odd,
      message: odd,
    } as const
    const details = { [odd]: { in: [odd] } }
    const events = [
      { ...event, details },
      { ...event, eventId: 'whole', message: 'whole' },
    ]
    expect(await agent.call(api.eventLogs.submit, { params, body: { events } })).toMatchObject({ count: 2 })
    const { data } = await user.call(api.eventLogs.list, { params: { id: deviceId } })
    expect(data.find(({ message }) => message !== 'whole')).toMatchObject({
      source: clean,
      eventId: clean,
      message: clean,
      details: { [clean]: { in: [clean] } },
    })
    const log = { ...at, level: 'warn', component: odd, message: odd, fields: details } as const
    await agent.call(api.diagnosticLogs.submit, { params, body: { logs: [log] } })
    const kept = await user.call(api.diagnosticLogs.list, { params: { id: deviceId } })
    expect(kept.data).toMatchObject([
      { component: clean, message: clean, fields: { [clean]: { in: [clean] } } },
    ])
    const heartbeat = {
      status: 'ok',
      agentVersion: '0.1.0',
      hostname: odd,
      osVersion: odd,
      lastUser: odd,
    } as never
    await agent.call(api.agents.heartbeat, { params, body: heartbeat })
    const software = [{ name: odd, version: odd }]
    await agent.call(api.agents.inventory, { params, body: { software } as never })
    const device = await user.call(api.devices.show, { params: { id: deviceId } })
    expect(device).toMatchObject({ hostname: clean, osVersion: clean })
  })
})
