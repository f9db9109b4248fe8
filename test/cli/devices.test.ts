import { stripVTControlCharacters } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openMigrated } from '../databases.ts'
import { enroller } from '../devices/device-fixture.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
let service: TestService
let world: World
let enroll: Awaited<ReturnType<typeof enroller>>

beforeAll(async () => {
  service = await serviceOn(await openMigrated('sqlite'))
  world = await buildWorld(service)
  enroll = await enroller(service, world.tokens.bakery)
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) =>
  home.run(args, { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery } })
const shown = async (id: string) =>
  service.client(world.tokens.bakery).call(api.devices.show, { params: { id } })

describe('svc devices', () => {
  it.skipIf(noTerminal)('asks a question that a terminal breaks between words', async () => {
    const { deviceId } = await enroll('kiosk-in-the-entrance')
    const byId = await home.terminal(['devices', 'decommission', deviceId.slice(0, 20)], {
      env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery },
      answers: [['to continue', 'no\r']],
    })
    expect(byId.stdout).toMatch(/^This is kiosk-in-the-entrance, last seen /m)
    const result = await home.terminal(['devices', 'decommission', 'kiosk-in-the-entrance'], {
      columns: 50,
      env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery },
      answers: [['to continue', 'kiosk\r']],
    })
    const lines = stripVTControlCharacters(result.stdout).split('\r\n')
    const at = lines.findIndex((line) => line.startsWith('? '))
    expect(lines.slice(at, at + 3)).toEqual([
      '? Its agent is refused from now on,',
      'until svc devices restore. Type',
      expect.stringMatching(/^kiosk-in-the-entrance to continue:/),
    ])
    expect([result.code, lines.join('\n')]).toEqual([1, expect.stringContaining('Nothing was changed')])
  })

  it('tags several devices by hostname, and updates, moves and lists them', async () => {
    const web1 = (await enroll('web-1')).deviceId
    const web2 = (await enroll('web-2')).deviceId
    const tagged = await svc('devices', 'tag', 'web-1', web2, '--add', 'prod', '--add', 'two words')
    expect(tagged).toMatchObject({ code: 0, stdout: 'Tagged 2 devices\n' })
    expect((await svc('devices', 'tag', 'web-2', '--remove', 'two words')).stdout).toBe('Tagged 1 device\n')
    expect((await shown(web1)).tags).toEqual(['prod', 'two words'])
    expect((await shown(web2)).tags).toEqual(['prod'])

    const change = ['--display-name', 'Front', '--custom-fields', '{"rack": "4"}', '--device-role', 'server']
    expect((await svc('devices', 'update', 'web-1', ...change, '--add-tag', 'a', '-q')).stdout).toBe(
      `${web1}\n`,
    )
    expect(await shown(web1)).toMatchObject({
      displayName: 'Front',
      customFields: { rack: '4' },
      deviceRole: 'server',
      tags: ['a', 'prod', 'two words'],
    })
    expect((await svc('devices', 'move', 'Front', 'bakery site')).stdout).toBe('web-1 moved\n')
    expect((await shown(web1)).siteId).toBe(world.orgs.bakery.siteId)
    const listed = await svc(
      'devices',
      '--site',
      'bakery site',
      '--tag',
      'prod',
      '--columns',
      'hostname,tags',
    )
    expect(listed.stdout).toBe('HOSTNAME  TAGS\nweb-1     a, prod, two words\n')
    expect((await svc('devices', 'show', 'web-1')).stdout).toMatch(
      /Tags\n {2}a\n[\s\S]*Custom fields\n {2}Rack: +4/,
    )
    const nothing = await svc('devices', 'update', 'web-1')
    expect([nothing.code, nothing.stderr]).toEqual([2, expect.stringContaining('must change something')])
  })

  it('lists the candidates of an ambiguous hostname', async () => {
    const twins = [(await enroll('twin')).deviceId, (await enroll('twin')).deviceId]
    const { code, stderr } = await svc('devices', 'show', 'twin')
    expect(code).toBe(2)
    for (const id of twins) expect(stderr).toContain(id)
  })

  it('maintains, decommissions, restores and deletes a device, with confirmation where needed', async () => {
    const id = (await enroll('till-1')).deviceId
    const on = await svc('devices', 'maintenance', 'till-1', '--hours', '4')
    expect(on.stdout).toMatch(/^till-1 is in maintenance until \d{4}-.*Z\n$/)
    expect((await svc('devices', 'maintenance', 'till-1', '--off')).stdout).toBe('till-1 is online\n')

    const asked = await svc('devices', 'decommission', 'till-1')
    expect([asked.code, asked.stderr]).toEqual([2, expect.stringContaining('Missing --yes')])
    const gone = await svc('devices', 'decommission', 'till-1', '--yes')
    expect(gone).toMatchObject({ code: 0, stdout: 'till-1 is decommissioned\n' })
    const again = await svc('devices', 'decommission', 'till-1', '--yes', '--json')
    expect([again.code, failureOf(again).code]).toEqual([6, 'already_decommissioned'])
    expect((await svc('devices', 'restore', 'till-1')).stdout).toBe('till-1 is restored\n')
    const early = await svc('devices', 'delete', 'till-1', '--yes', '--json')
    expect([early.code, failureOf(early).code]).toEqual([6, 'not_decommissioned'])
    await svc('devices', 'decommission', id, '--yes')
    expect((await svc('devices', 'delete', 'till-1', '--yes')).stdout).toBe('Device till-1 deleted\n')
    expect((await svc('devices', 'delete', id, '--yes', '--ignore-not-found')).code).toBe(0)
  })

  it('prints all devices with --all, and the software of one', async () => {
    for (let n = 0; n < 120; n++) await enroll(`many-${String(n).padStart(3, '0')}`)
    const all = await svc('devices', '--all', '--search', 'many-', '-o', 'ndjson')
    const names = all.stdout.trim().split('\n')
    expect(names.map((line) => (JSON.parse(line) as { hostname: string }).hostname)).toEqual(
      Array.from({ length: 120 }, (_, n) => `many-${String(n).padStart(3, '0')}`),
    )
    const { agentId, agentToken } = world.orgs.bakery
    await service.client(agentToken).call(api.agents.inventory, {
      params: { id: agentId },
      body: { software: [{ name: 'openssl', version: '3' }, { name: 'zip' }] },
    })
    const software = await svc(
      'devices',
      'software',
      'bakery-pc',
      '--name',
      'SSL',
      '--columns',
      'name,version',
    )
    expect(software.stdout).toBe('NAME     VERSION\nopenssl  3\n')
  })
})
