import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openMigrated } from '../databases.ts'
import { enroller } from '../devices/device-fixture.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { Home } from './run.ts'

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

describe('svc devices maintenance', () => {
  it('sets the maintenance window of a device, shows when it opens next, and removes it', async () => {
    const id = (await enroll('till-2')).deviceId
    const maintenance = (...rest: string[]) => svc('devices', 'maintenance', 'till-2', ...rest)
    const window = ['--every', 'sun 02:00', '--for', '2h', '--timezone', 'Europe/Paris']
    const dry = JSON.parse((await maintenance(...window, '--dry-run', '--json')).stdout)
    expect(dry.request).toMatchObject({
      method: 'POST',
      url: expect.stringMatching(new RegExp(`/devices/${id}/maintenance$`)),
    })
    expect(dry.request.body).toEqual({
      window: { every: 'sun 02:00', durationMinutes: 120, timezone: 'Europe/Paris' },
    })
    expect((await maintenance('--none', '--dry-run', '--json')).stdout).toContain('"window": null')
    expect((await shown(id)).maintenanceWindow).toBeNull()

    const set = await maintenance(...window)
    expect(set.stdout).toMatch(
      /^till-2 is online\nMaintenance window: Sun 02:00 for 2h, Europe\/Paris; next from \d{4}-\S+Z to \d{4}-\S+Z\n$/,
    )
    expect((await shown(id)).maintenanceWindow).toEqual({
      every: 'Sun 02:00',
      durationMinutes: 120,
      timezone: 'Europe/Paris',
    })
    expect((await svc('devices', 'show', 'till-2')).stdout).toMatch(
      /Maintenance window\n {2}Every: +Sun 02:00\n[\s\S]*Next window\n {2}Opens at: +\d{4}-/,
    )
    expect((await maintenance('--none')).stdout).toBe('till-2 is online\n')
    expect((await shown(id)).maintenanceWindow).toBeNull()
  })

  it.each([
    [['--every', 'at night', '--for', '2h'], '--every: must be days and a time'],
    [['--every', 'Sun 02:00', '--for', '25h'], '--for: must be at most 1440'],
    [['--every', 'Sun 02:00', '--for', '2h', '--timezone', 'Mars/Olympus'], '--timezone: must be an IANA'],
    [['--every', 'Sun 02:00'], '--every needs --for'],
    [['--every', 'Sun 02:00', '--for', 'long'], '--for takes a duration'],
    [['--for', '2h'], '--for is about --every'],
    [['--every', 'Sun 02:00', '--for', '2h', '--off'], '--off'],
    [['--none', '--hours', '2'], '--hours'],
  ])('refuses %j as a maintenance window', async (flags, message) => {
    const { code, stderr } = await svc('devices', 'maintenance', 'bakery-pc', ...flags)
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)])
  })
})
