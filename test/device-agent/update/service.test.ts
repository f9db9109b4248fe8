import { readFileSync, statSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { api } from '../../../src/api.ts'
import { releaseHost } from '../../agents/release-host.ts'
import { signedRelease } from '../../agents/signed-release.ts'
import { inTurn, openMigrated } from '../../databases.ts'
import { isSoak } from '../../depth.ts'
import { startService } from '../../harness.ts'
import { buildWorld, systemToken } from '../../world.ts'
import { builds, machine } from './machine.ts'
import { assetName } from './releases.ts'

vi.setConfig({ testTimeout: 180_000 })
const build = builds()
const patience = { timeout: 90_000, interval: 200 }
const until = (check: () => Promise<void> | void) => vi.waitFor(check, patience)

/** An agent of version 1 enrolls with a service whose release host offers 2, and then a broken version. */
async function updateAndRollBack(
  open: Parameters<typeof startService>[0],
  [first, second]: [string, string],
): Promise<void> {
  const host = await releaseHost()
  const service = await startService(open, { env: host.env() })
  const { tokens, orgs } = await buildWorld(service)
  const client = service.client(tokens.bakery)
  const system = service.client(await systemToken(service))
  const { key } = await client.call(api.enrollmentKeys.create, {
    body: { orgId: orgs.bakery.id, name: 'Agents' },
  })
  const publish = async (version: string, content: Buffer): Promise<void> => {
    host.publish(signedRelease(version, { files: { [assetName]: content } }))
    await system.call(api.agentVersions.sync, { query: { version } })
  }

  await using agent = machine(first, service.url, {
    env: { SVC_ENROLLMENT_KEY: key },
    settings: { trialSeconds: 60 },
  })
  const pid = agent.pid()
  await until(() => expect(agent.events()[0]).toMatchObject({ event: 'enrolled' }))
  const id = String(agent.events()[0]!.deviceId)
  const device = () => client.call(api.devices.show, { params: { id } })
  await until(async () => expect(await device()).toMatchObject({ agentVersion: '1.0.0', status: 'online' }))

  await publish('2.0.0', readFileSync(second))
  await until(async () =>
    expect(await device()).toMatchObject({ agentVersion: '2.0.0', status: 'online', update: null }),
  )
  await until(() => expect(agent.states()).toContain('installed'))
  expect(agent.installed().equals(readFileSync(second))).toBe(true)
  expect([agent.pid(), agent.starts()]).toEqual([pid, 1])

  await publish('3.0.0', Buffer.from('#!/bin/sh\nexit 3\n'))
  await until(async () =>
    expect((await device()).update).toMatchObject({ state: 'rolled_back', version: '3.0.0' }),
  )
  expect((await device()).update!.reason).toBe('exit code 3 before its first heartbeat')
  await until(async () => expect(await device()).toMatchObject({ agentVersion: '2.0.0', status: 'online' }))

  await system.call(api.deviceCommands.setAutoUpdate, { params: { id }, body: { enabled: false } })
  await until(async () =>
    expect((await device()).autoUpdate).toEqual({ desired: false, acknowledged: false }),
  )
  const { data } = await client.call(api.deviceCommands.list, { params: { id } })
  expect(data).toMatchObject([{ type: 'set_auto_update', status: 'completed' }])
  expect(await agent.terminate()).toBe(0)
  expect(statSync(agent.file).mode & 0o777).toBe(0o755)
}

inTurn((open) => {
  test('an agent is updated by its service, and keeps its version when the next one is broken', () =>
    updateAndRollBack(open, [build('1.0.0'), build('2.0.0')]))
})

test.runIf(isSoak)('an agent that is a single executable is updated in the same way', () =>
  updateAndRollBack(
    () => openMigrated('sqlite'),
    [build('1.0.0', { executable: true }), build('2.0.0', { executable: true })],
  ),
)
