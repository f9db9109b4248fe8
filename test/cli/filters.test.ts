import { describe, expect, it } from 'vitest'
import type { World } from '../world.ts'
import { liveService } from './live-service.ts'
import { failureOf } from './run.ts'

const live = liveService()
const { home } = live

const as = (token: keyof World['tokens']) => (args: string[], input?: string) =>
  home.run(args, {
    env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens[token] },
    ...(input !== undefined && { input }),
  })
const [admin, acme] = [as('bakery'), as('acme')]
const where = 'osType = linux and (hostname contains PC or tags is not empty)'

describe('svc filters', () => {
  it('saves an expression, shows it in the same form, and changes and deletes it by name', async () => {
    const made = await admin(['filters', 'create', '--name', 'Linux', '--where', where, '--json'])
    expect([made.code, made.stderr]).toEqual([0, ''])
    const { id, conditions } = JSON.parse(made.stdout)
    expect(conditions.conditions[0]).toEqual({ field: 'osType', operator: 'equals', value: 'linux' })
    const shown = await admin(['filters', 'show', 'linux'])
    expect(shown.stdout).toContain(`Where:       ${where}\n`)

    const again = ['filters', 'create', '--name', 'Linux', '--where', where, '--if-not-exists', '-q']
    expect((await admin(again)).stdout.trim()).toBe(id)
    const tree = await admin(['filters', 'show', 'Linux', '--json', '--jq', '.conditions'])
    const copied = await admin(['filters', 'create', '--name', 'Copy', '--file', '-', '--json'], tree.stdout)
    expect(JSON.parse(copied.stdout).conditions).toEqual(conditions)

    const changed = await admin(['filters', 'update', 'Copy', '--where', '@-nothing'])
    expect(changed.code).toBe(2)
    expect((await admin(['filters', 'update', 'Copy', '--where', '-'], 'status=online\n')).stdout).toContain(
      'Where:       status = online\n',
    )
    expect((await admin(['filters', '--columns', 'name', '--no-header'])).stdout).toBe(
      'Copy\nLinux\nbakery filter\n',
    )
    for (const name of ['Copy', 'Linux']) {
      expect((await admin(['filters', 'delete', name, '--yes'])).code).toBe(0)
    }
    expect((await admin(['filters', '--columns', 'name', '--no-header'])).stdout).toBe('bakery filter\n')
  })

  it('lists those of one organization with --org', async () => {
    for (const org of ['bakery', 'garage'])
      await acme(['filters', 'create', '--org', org, '--name', `Of the ${org}`, '--where', where, '-q'])
    const { code, stdout } = await acme(['filters', '--org', 'garage', '--columns', 'name'])
    expect(code).toBe(0)
    expect(stdout).toContain('Of the garage')
    expect(stdout).not.toContain('Of the bakery')
    expect((await acme(['filters', '--columns', 'name'])).stdout).toContain('Of the bakery')
  })

  it('previews an expression, a saved filter or a file, and prints the count on standard error', async () => {
    expect((await admin(['filters', 'create', '--name', 'Mine', '--where', where])).code).toBe(0)
    home.write(
      'tree.json',
      JSON.stringify({
        operator: 'AND',
        conditions: [{ field: 'osType', operator: 'equals', value: 'linux' }],
      }),
    )
    const columns = ['--columns', 'hostname', '--no-header']
    for (const what of [['Mine'], ['--where', where], ['--file', `${home.path}/tree.json`]]) {
      const { code, stdout, stderr } = await admin(['filters', 'preview', ...what, ...columns])
      expect([code, stdout, stderr]).toEqual([0, 'bakery-pc\n', '1 device matches\n'])
    }
    const cut = await acme(['filters', 'preview', '--where', where, '--limit', '1', ...columns])
    expect([cut.stdout, cut.stderr]).toEqual(['bakery-pc\n', '2 devices match, 1 shown\n'])
    const json = await acme(['filters', 'preview', '--where', where, '--json', '--jq', '.data.totalCount'])
    expect([json.stdout, json.stderr]).toEqual(['2\n', ''])
  })

  it('explains an expression without a service', async () => {
    const offline = (...args: string[]) =>
      home.run(['filters', 'explain', ...args], { env: { SVC_URL: 'http://127.0.0.1:1' } })
    const text =
      'status in (online, updating) and (lastSeenAt not within 1 day or hardware.cpuCores < 8 and custom.rack is null)'
    expect((await offline('--where', text)).stdout).toBe(
      [
        'Devices of which all of this is true',
        '├─ Status is one of online, updating',
        '└─ at least one of',
        '   ├─ Last seen is not within the last 1 day',
        '   └─ all of',
        '      ├─ Processor cores is less than 8',
        '      └─ Custom field rack is unknown',
        '',
      ].join('\n'),
    )
    const json = JSON.parse((await offline('--where', text, '--json')).stdout)
    expect(json.expression).toBe(text)
  })

  it('points at syntax errors, and leaves other checks to the service', async () => {
    const wrong = await admin(['filters', 'preview', '--where', 'hostname lik x', '--json'])
    expect(wrong.code).toBe(2)
    expect(failureOf(wrong).message).toBe(
      'The filter is wrong at column 10: expected an operator such as =, contains or in, found "lik"\n  hostname lik x\n           ^',
    )
    const unknown = await admin(['filters', 'preview', '--where', 'hostnam = x'])
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('hostname')])
    for (const args of [[], ['Mine', '--where', 'status = online'], ['--where', 'a=1', '--file', 'x']]) {
      expect([args, (await admin(['filters', 'preview', ...args])).code]).toEqual([args, 2])
    }
    expect((await admin(['filters', 'create', '--name', 'X'])).stderr).toContain('Missing --where')
    home.write('bad.json', '{"operator":"XOR","conditions":[]}')
    const bad = await admin(['filters', 'preview', '--file', `${home.path}/bad.json`])
    expect([bad.code, bad.stderr]).toEqual([2, expect.stringContaining('operator must be AND or OR')])
  })
})

describe('svc search', () => {
  it('finds by a part of a name, optionally of one type', async () => {
    const found = await admin(['search', 'PROFILE', '--columns', 'type,title', '--no-header'])
    expect(found.stdout).toBe('settings  Profile settings\n')
    const devices = await acme(['search', 'pc', '--type', 'devices', '--json', '--jq', '.results[].title'])
    expect(devices.stdout).toBe('bakery-pc\ngarage-pc\n')
    expect((await acme(['search', 'pc', '--limit', '1', '-q'])).stdout.trim()).toBe(
      live.world.orgs.bakery.deviceId,
    )
    expect((await acme(['search', 'manage', '--type', 'devices'])).stdout).not.toContain('settings')
  })
})
