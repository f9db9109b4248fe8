import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { inTurn } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { systemToken } from '../../world.ts'
import { begin, type Machine } from '../rollouts/rollout-fixture.ts'
import { signedRelease } from '../signed-release.ts'

const problem = (status: number, code: string, more: object = {}) =>
  expect.objectContaining({ status, code, ...more })

type Where = { component?: 'agent'; platform?: 'linux' | 'windows'; arch?: 'x64' | 'arm64' }

inTurn((open) => {
  /** 1.1.0, 1.2.0 and 1.3.0 are registered, and 1.3.0 is promoted. */
  const setUp = async (kinds = ['linux/x64', 'windows/x64']) => {
    const stage = await begin(open)
    const { service, system, enroll, release, clock } = stage
    for (const version of ['1.1.0', '1.2.0']) await release(version, { kinds })
    await release('1.3.0', { kinds, promoted: true })
    clock.forward(1)
    const pc = await enroll('pc')
    const back = (version: string, more: Where = {}) =>
      system.call(api.agentVersions.rollback, { body: { version, ...more } })
    const promote = (version: string) => system.call(api.agentVersions.promote, { body: { version } })
    const offerTo = async ({ agentId: id, authToken }: Machine, agentVersion: string) => {
      const body = { status: 'ok' as const, agentVersion }
      const reply = await service.client(authToken).call(api.agents.heartbeat, { params: { id }, body })
      return { to: reply.upgradeTo, rollback: reply.rollback }
    }
    const inForce = async () =>
      (await system.call(api.agentVersions.list)).data.flatMap(({ version, rollbackFor }) =>
        rollbackFor.map((build) => `${build} ${version}`),
      )
    return { ...stage, pc, back, promote, offerTo, inForce }
  }
  const nothing = { to: null, rollback: undefined }
  const up = (to: string) => ({ to, rollback: undefined })
  const down = (to: string) => ({ to, rollback: true })

  describe('a rollback', () => {
    it('moves devices back from newer versions, and holds them until a promotion', async () => {
      const { pc, back, promote, offerTo, inForce } = await setUp()
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
      expect(await back('1.2.0')).toEqual({
        promoted: ['agent:linux/x64', 'agent:windows/x64'],
        demoted: ['agent:linux/x64@1.3.0', 'agent:windows/x64@1.3.0'],
        endedRollout: null,
      })
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
      expect(await offerTo(pc, '1.4.0-rc.1')).toEqual(down('1.2.0'))
      expect(await offerTo(pc, '1.2.0')).toEqual(nothing)
      expect(await offerTo(pc, '1.1.0')).toEqual(up('1.2.0'))
      expect(await inForce()).toEqual(['agent:linux/x64 1.2.0', 'agent:windows/x64 1.2.0'])

      await promote('1.3.0')
      expect(await offerTo(pc, '1.2.0')).toEqual(up('1.3.0'))
      expect(await offerTo(pc, '1.4.0-rc.1')).toEqual(nothing)
      expect(await inForce()).toEqual([])
    })

    it('ends with a promotion of that version: a device with a newer one then keeps it', async () => {
      const { pc, back, promote, offerTo, inForce } = await setUp()
      await back('1.2.0')
      await promote('1.2.0')
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
      expect(await offerTo(pc, '1.1.0')).toEqual(up('1.2.0'))
      expect(await inForce()).toEqual([])
    })

    it('has no further effect when repeated, and may continue to an even older version', async () => {
      const { pc, back, offerTo, inForce } = await setUp()
      await back('1.2.0')
      expect(await back('1.2.0')).toMatchObject({ demoted: [], endedRollout: null })
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
      await back('1.1.0')
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.1.0'))
      expect(await offerTo(pc, '1.2.0')).toEqual(down('1.1.0'))
      expect(await inForce()).toEqual(['agent:linux/x64 1.1.0', 'agent:windows/x64 1.1.0'])
    })

    it('applies only to the named platforms', async () => {
      const { pc, service, back, offerTo, inForce } = await setUp()
      expect(await back('1.2.0', { platform: 'windows' })).toMatchObject({
        demoted: ['agent:windows/x64@1.3.0'],
      })
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
      const devices = service.storage.write((tx) =>
        tx.updateTable('devices').set({ os_type: 'windows' }).where('id', '=', pc.deviceId).execute(),
      )
      await devices
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
      expect(await inForce()).toEqual(['agent:windows/x64 1.2.0'])
      await expect(back('1.2.0', { arch: 'arm64' })).rejects.toThrow(problem(404, 'not_found'))
    })

    it('moves no device up', async () => {
      const { pc, back, offerTo, inForce } = await setUp()
      await back('1.1.0', { platform: 'windows' })
      // Windows stays on the older one.
      expect(await back('1.2.0')).toMatchObject({ demoted: ['agent:linux/x64@1.3.0'] })
      expect(await inForce()).toEqual(['agent:linux/x64 1.2.0', 'agent:windows/x64 1.1.0'])
      await expect(back('1.3.0')).rejects.toThrow(
        problem(409, 'conflict', { message: expect.stringContaining('svc agent promote 1.3.0') }),
      )
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
    })

    it('does not affect devices without auto-update, or where it failed within the hour', async () => {
      const { pc, back, offerTo, say, service, clock } = await setUp()
      await back('1.2.0')
      expect(await offerTo(pc, 'dev-abc')).toEqual(nothing)
      await say(pc, { targetVersion: '1.2.0', state: 'refused', reason: 'it is below 1.3.0' })
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
      clock.forward(3600)
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
      await service.storage.write((tx) => tx.updateTable('devices').set({ auto_update: 0 }).execute())
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
    })

    it('is audited, with the versions offered before and the actor', async () => {
      const { service, back } = await setUp()
      const news = await newEntries(service)
      await back('1.2.0', { platform: 'linux' })
      expect(await news()).toEqual([
        expect.objectContaining({
          action: 'agent.version.rollback',
          result: 'success',
          details: expect.objectContaining({
            rawResourceId: '1.2.0',
            before: { 'agent:linux/x64': '1.3.0' },
            after: { 'agent:linux/x64': '1.2.0' },
            endedRollout: null,
          }),
        }),
      ])
    })

    it('requires the system scope, with MFA', async () => {
      const { service, world } = await setUp()
      const body = { version: '1.2.0' }
      for (const token of [world.tokens.acme, world.tokens.bakery]) {
        await expect(service.client(token).call(api.agentVersions.rollback, { body })).rejects.toThrow(
          problem(403, 'scope_not_allowed'),
        )
      }
      const weak = service.client(await systemToken(service, { mfa: false }))
      await expect(weak.call(api.agentVersions.rollback, { body })).rejects.toThrow(
        problem(403, 'mfa_required'),
      )
    })

    it('ends with a promotion by an older release that knows no rollbacks', async () => {
      const { pc, back, offerTo, service, clock } = await setUp()
      await back('1.2.0')
      clock.forward(1)
      await service.storage.write((tx) =>
        tx.updateTable('agent_builds').set({ promoted_at: clock() }).where('version', '=', '1.2.0').execute(),
      )
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
    })
  })

  describe('a rollout of a newer version', () => {
    it.each(['running', 'halted'] as const)(
      'that is %s ends with a rollback, and is reverted',
      async (was) => {
        const { pc, back, offerTo, release, start, move, status, system, inForce } = await setUp()
        await release('1.4.0')
        const id = await start({ version: '1.4.0', waves: [{ percent: 100 }] })
        expect(await offerTo(pc, '1.3.0')).toEqual(up('1.4.0'))
        if (was === 'halted') await move('halt', id)
        expect(await back('1.2.0')).toMatchObject({ endedRollout: id })
        expect(await status(id)).toMatchObject({
          status: 'aborted',
          isCurrent: false,
          haltReason: 'Rolled back to 1.2.0 by admin@example.com',
        })
        expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
        expect(await offerTo(pc, '1.4.0')).toEqual(down('1.2.0'))
        expect(await inForce()).toContain('agent:linux/x64 1.2.0')
        const query = { action: 'agent.rollout.abort' }
        expect((await system.call(api.auditLogs.list, { query })).data).toEqual([
          expect.objectContaining({ resource: expect.objectContaining({ id }) }),
        ])
      },
    )

    it('that was aborted holds no device any more', async () => {
      const { pc, back, offerTo, release, start, move } = await setUp()
      await release('1.4.0')
      const id = await start({ version: '1.4.0', waves: [{ percent: 100 }] })
      await offerTo(pc, '1.3.0')
      await offerTo(pc, '1.4.0')
      await move('abort', id)
      expect(await offerTo(pc, '1.4.0')).toEqual(nothing)
      expect(await back('1.3.0')).toMatchObject({ demoted: [], endedRollout: null })
      expect(await offerTo(pc, '1.4.0')).toEqual(down('1.3.0'))
    })

    it('can start while a rollback is in force, and its devices stay on its version', async () => {
      const { pc, back, offerTo, release, start, move } = await setUp()
      await back('1.2.0')
      await release('1.3.1')
      expect(await offerTo(pc, '1.2.0')).toEqual(nothing)
      const id = await start({ version: '1.3.1', waves: [{ percent: 100 }] })
      expect(await offerTo(pc, '1.2.0')).toEqual(up('1.3.1'))
      expect(await offerTo(pc, '1.3.1')).toEqual(nothing)
      await move('rollBack', id)
      expect(await offerTo(pc, '1.3.1')).toEqual(down('1.2.0'))
    })

    it('that is rolled back tells its devices that they go back', async () => {
      const { pc, offerTo, release, start, move } = await setUp()
      await release('1.4.0')
      const id = await start({ version: '1.4.0', waves: [{ percent: 100 }] })
      await offerTo(pc, '1.3.0')
      await offerTo(pc, '1.4.0')
      await move('rollBack', id)
      expect(await offerTo(pc, '1.4.0')).toEqual(down('1.3.0'))
    })
  })

  describe('an older version', () => {
    const older = problem(409, 'rollback_needed', {
      message: '1.2.0 is older than 1.3.0, which is offered: svc agent rollback 1.2.0 returns to it',
    })

    it('can neither be promoted nor rolled out', async () => {
      const { promote, system, start, release, offerTo, pc } = await setUp()
      await expect(promote('1.2.0')).rejects.toThrow(older)
      await expect(start({ version: '1.2.0', waves: [{ percent: 100 }] })).rejects.toThrow(older)
      await release('1.3.0-rc.9')
      await expect(promote('1.3.0-rc.9')).rejects.toThrow(problem(409, 'rollback_needed'))
      expect(
        (await system.call(api.agentVersions.show, { params: { version: '1.3.0' } })).promotedFor,
      ).toEqual(['agent:linux/x64', 'agent:windows/x64'])
      expect(await offerTo(pc, '1.1.0')).toEqual(up('1.3.0'))
    })

    it('can be promoted only where the offered one is older still', async () => {
      const { promote, back } = await setUp()
      await back('1.1.0', { platform: 'windows' })
      expect(await promote('1.2.0')).toEqual({
        promoted: ['agent:windows/x64'],
        demoted: ['agent:windows/x64@1.1.0'],
      })
    })

    it('below the minimum version of a signed release cannot be offered', async () => {
      const { promote, back, release, start, system, offerTo, pc } = await setUp()
      const manifest = signedRelease('1.4.0', { minimumVersion: '1.2.0' }).manifest.toString()
      await release('1.4.0', { manifest })
      const { minimumVersion } = await system.call(api.agentVersions.show, { params: { version: '1.4.0' } })
      expect(minimumVersion).toBe('1.2.0')
      const below = problem(409, 'below_minimum_version', {
        message: '1.1.0 is below 1.2.0, which 1.4.0 names as the lowest version that agents may go to',
        details: { minimumVersion: '1.2.0', namedBy: '1.4.0' },
      })
      for (const attempt of [
        () => back('1.1.0'),
        () => promote('1.1.0'),
        () => start({ version: '1.1.0', waves: [{ percent: 100 }] }),
      ]) {
        await expect(attempt()).rejects.toThrow(below)
      }
      expect(await offerTo(pc, '1.3.0')).toEqual(nothing)
      await back('1.2.0')
      expect(await offerTo(pc, '1.3.0')).toEqual(down('1.2.0'))
    })
  })
})
