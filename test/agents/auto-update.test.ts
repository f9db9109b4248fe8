import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { begin } from '../devices/device-fixture.ts'
import { listen } from '../events/listener.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const start = async () => {
    const stage = await begin(open)
    const { service, client, enroll, show } = stage
    const { agentId, deviceId, authToken } = await enroll('till-1')
    const params = { id: deviceId }
    const own = service.client(authToken)
    const decide = (enabled: boolean, by = client) =>
      by.call(api.deviceCommands.setAutoUpdate, { params, body: { enabled } })
    const beat = (autoUpdate?: boolean) =>
      own.call(api.agents.heartbeat, {
        params: { id: agentId },
        body: { status: 'ok', agentVersion: '0.1.0', ...(autoUpdate !== undefined && { autoUpdate }) },
      })
    const answer = (commandId: string, more: Record<string, unknown> = {}) =>
      own.call(api.agentCommands.result, {
        params: { id: agentId, commandId },
        body: { status: 'completed', ...more } as never,
      })
    const autoUpdate = async () => (await show(deviceId)).autoUpdate
    const config = async () => (await own.call(api.agents.config, { params: { id: agentId } })).autoUpdate
    const command = (id: string) =>
      client.call(api.deviceCommands.show, { params: { id: deviceId, commandId: id } })
    return { ...stage, params, deviceId, decide, beat, answer, autoUpdate, config, command }
  }

  describe('the auto-update decision for a device', () => {
    it('is stored with the device, sent as a command, and part of the configuration', async () => {
      const { decide, beat, answer, autoUpdate, config, deviceId } = await start()
      expect(await autoUpdate()).toEqual({ desired: true, acknowledged: null })
      expect(await config()).toBe(true)
      const made = await decide(false)
      expect(made).toEqual({
        id: expect.any(String),
        deviceId,
        type: 'set_auto_update',
        status: 'pending',
        createdAt: expect.any(String),
      })
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: null })
      expect(await config()).toBe(false)
      const { commands } = await beat()
      expect(commands).toEqual([{ id: made.id, type: 'set_auto_update', payload: { enabled: false } }])
      await answer(made.id, { result: { enabled: false } })
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: false })
    })

    it('is acknowledged with the setting that the agent reports, which may differ', async () => {
      const { decide, beat, answer, autoUpdate } = await start()
      const plain = await decide(false)
      await beat()
      await answer(plain.id)
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: false })
      const refused = await decide(true)
      await beat()
      await answer(refused.id, { result: { enabled: false } })
      expect(await autoUpdate()).toEqual({ desired: true, acknowledged: false })
      const failed = await decide(true)
      await beat()
      await answer(failed.id, { status: 'failed', error: 'read-only file system', result: { enabled: true } })
      expect(await autoUpdate()).toEqual({ desired: true, acknowledged: false })
    })

    it('is repeated in heartbeats when the command is lost, until the agent has it', async () => {
      const { decide, beat, autoUpdate, service } = await start()
      await decide(false)
      await service.storage.write((tx) => tx.deleteFrom('agent_commands').execute())
      expect((await beat(true)).configUpdate).toEqual({ autoUpdate: false })
      expect((await beat(true)).configUpdate).toEqual({ autoUpdate: false })
      expect((await beat(false)).configUpdate).toBeNull()
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: false })
    })

    it('is the latest one: a pending earlier one is canceled', async () => {
      const { decide, beat, answer, autoUpdate, command } = await start()
      const [first, second] = [await decide(false), await decide(true)]
      expect((await beat()).commands).toMatchObject([{ id: second.id, payload: { enabled: true } }])
      const third = await decide(false)
      expect(await command(first.id)).toMatchObject({
        status: 'failed',
        result: { error: 'A later command replaced it' },
      })
      expect((await command(second.id)).status).toBe('failed')
      await answer(second.id, { result: { enabled: true } })
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: null })
      expect((await beat()).commands).toMatchObject([{ id: third.id }])
    })

    it('may be made by creating the command itself', async () => {
      const { client, params, autoUpdate } = await start()
      const body = { type: 'set_auto_update', payload: { enabled: false } } as never
      await client.call(api.deviceCommands.create, { params, body })
      expect(await autoUpdate()).toEqual({ desired: false, acknowledged: null })
    })

    it('is audited with the previous value, and webhooks get it when it differs', async () => {
      const { decide, client, deviceId, service, bakery } = await start()
      const received = await listen(service, bakery.id)
      const updateEvents = async () =>
        (await received()).filter(({ data }) => 'autoUpdate' in data).map(({ type }) => type)
      await decide(true)
      expect(await updateEvents()).toEqual([])
      await decide(false)
      expect(await updateEvents()).toEqual(['device.updated'])
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 2 } })
      expect(data[0]).toMatchObject({
        action: 'device.auto_update.set',
        resource: { id: deviceId, name: 'till-1' },
        details: { before: { autoUpdate: true }, after: { autoUpdate: false } },
      })
    })

    it('requires the permission to execute, within the own organization', async () => {
      const { decide, service, tokens } = await start()
      const viewer = service.client(tokens.bakeryViewer)
      await expect(decide(false, viewer)).rejects.toEqual(failing(403, 'forbidden'))
      await expect(decide(false, service.client(tokens.garage))).rejects.toEqual(failing(404, 'not_found'))
    })
  })
})
