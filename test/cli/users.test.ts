import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { unsent } from '../identity/mail.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let service: TestService
let world: World

beforeAll(async () => {
  service = await startService(() => openMigrated('sqlite'), { outside: { mailer: unsent(false) } })
  world = await buildWorld(service)
})
beforeEach(() => home.signIn(service.url, { accessToken: world.tokens.bakery }))
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)
const outputOf = async (...args: string[]) => {
  const { code, stdout, stderr } = await svc(...args)
  expect([code, stderr]).toEqual([0, expect.any(String)])
  return stdout.trim()
}
const statusOf = (email: string) => outputOf('users', 'show', email, '--jq', '.status')

const invite = (email: string) => outputOf('users', 'invite', email, '--name', 'Ada', '--role', 'Org Viewer')

describe('svc users', () => {
  it('lists and shows users, by email and by ID', async () => {
    const list = await outputOf('users', '--columns', 'email,roleName', '--csv', '--no-header')
    expect(list).toContain('bakery-admin@example.com,Org Admin')
    const id = await outputOf('users', 'show', 'bakery-viewer@example.com', '-q')
    expect(await outputOf('users', 'show', id, '--jq', '.email')).toBe('bakery-viewer@example.com')
    expect(failureOf(await svc('users', 'show', 'nobody@example.com', '--json'))).toMatchObject({
      code: 'not_found',
    })
  })

  it('names only the missing argument', async () => {
    const { code, stderr } = await svc('users', 'invite')
    expect([code, stderr]).toEqual([2, 'Error: Missing EMAIL\nHint: svc users invite --help\n'])
  })

  it('invites, resends, and accepts a link without passing it as an argument', async () => {
    const printed = await invite('ada@example.com')
    expect(printed).toContain('ada@example.com is invited')
    const again = await outputOf('users', 'resend', 'ada@example.com')
    const link = /http\S+/.exec(again)?.[0] ?? ''
    expect(link).toContain('/accept-invite?token=')
    expect(again).toBe(`There is no mail server, so send this link:\n${link}`)
    expect(printed).not.toContain(link)
    const file = home.write('link.txt', link)
    const guest = new Home()
    const args = ['invite', 'accept', '--url', service.url, '--invitation', `@${file}`, '--password-stdin']
    const onArgv = await guest.run([...args.slice(0, 4), '--invitation', link, '--password', '-'])
    expect([onArgv.code, onArgv.stderr]).toEqual([2, expect.stringContaining('on the command line')])
    const accepted = await guest.run([...args, '--store', 'file'], {
      input: 'nine quiet herons at the weir\n',
    })
    expect([accepted.code, accepted.stderr]).toEqual([0, expect.stringContaining('as ada@example.com')])
    expect((await guest.run(['profile', '--jq', '.status'])).stdout.trim()).toBe('active')
    expect(
      (await guest.run(['profile', 'update', '--name', 'Ada King', '--jq', '.name'])).stdout.trim(),
    ).toBe('Ada King')
    guest.remove()
  })

  it('changes name, status, role and access, and removes a user', async () => {
    const email = 'bob@example.com'
    await invite(email)
    expect(await outputOf('users', 'update', email, '--name', 'Bob', '--jq', '.name')).toBe('Bob')
    await outputOf('users', 'disable', email)
    expect(await statusOf(email)).toBe('disabled')
    await outputOf('users', 'enable', email)
    expect(await statusOf(email)).toBe('active')
    expect(await outputOf('users', 'role', email, '--role', 'Org Technician')).toBe('Role assigned')
    const sites = await outputOf('users', 'access', email, '--site', 'bakery site', '--jq', '.siteIds[]')
    expect(sites).toBe(world.orgs.bakery.siteId)
    expect(await outputOf('users', 'access', email, '--site', 'null', '--jq', '.siteIds')).toBe('null')
    expect(await outputOf('users', 'sign-out', email)).toBe('Signed out')
    expect(await outputOf('users', 'unlock', email)).toBe('Unlocked')
    expect(failureOf(await svc('users', 'remove', email, '--json')).message).toContain('--yes')
    expect(await outputOf('users', 'remove', email, '--yes')).toBe('User removed')
    expect(await outputOf('users', 'remove', email, '--yes', '--ignore-not-found')).toBe('')
  })

  it('refuses to remove the last administrator, with exit code 6', async () => {
    home.signIn(service.url, { accessToken: world.tokens.acme })
    const orgId = world.orgs.bakery.id
    const removed = await svc(
      'users',
      'remove',
      'bakery-admin@example.com',
      '--org',
      orgId,
      '--yes',
      '--json',
    )
    expect([removed.code, failureOf(removed).code]).toEqual([6, 'last_administrator'])
  })
})
