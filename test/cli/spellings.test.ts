import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formerFlagsEnd } from '../../src/cli/flags.ts'
import { FakeService, organization, page, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

type Flag = { name: string; type: string; multiple?: boolean; aliases?: string[] }

const root = new URL('../../', import.meta.url)
const read = (name: string) => JSON.parse(readFileSync(new URL(name, root), 'utf8')) as unknown
const { commands } = read('oclif.manifest.json') as {
  commands: Record<string, { flags: Record<string, Flag> }>
}
const flags = Object.entries(commands).flatMap(([id, { flags }]) =>
  Object.values(flags).map((flag) => ({ id, ...flag })),
)

const home = new Home()
const service = new FakeService({
  'GET /orgs/': { body: { data: [organization(10, 'blue-bakery', 'Blue Bakery')] } },
  'GET /users': page([]),
  'GET /api-keys': page([]),
  [`DELETE /enrollment-keys/${uuid(7)}`]: { body: { success: true, message: 'Enrollment key deleted' } },
})

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

describe('a flag', () => {
  it('that is repeated has a singular name', () => {
    const plural = flags.filter(({ name, multiple }) => multiple && /(ids|[^os]s)$/.test(name))
    expect(plural.map(({ id, name }) => `${id} --${name}`)).toEqual(['db:restore --without-keys'])
  })

  it('of a time range is --since or --until, and one that looks for text --search', () => {
    const other = flags.filter(({ id, name }) => ['from', 'to', 'q'].includes(name) && !id.startsWith('db'))
    expect(other.map(({ id, name }) => `${id} --${name}`).sort()).toEqual([
      // The recipient of a mail, and where deliveries go.
      'dev:outbox --to',
      'webhooks:create --to',
      'webhooks:update --to',
    ])
  })

  it.each([
    [['users', '--q', 'ada'], '--q', '--search', 'q=ada'],
    [['users', '--q=ada'], '--q', '--search', 'q=ada'],
  ])('%s works under its former name, with a warning', async (args, former, present, query) => {
    const { code, stderr } = await home.run(args)
    expect([code, stderr]).toEqual([
      0,
      `Warning: ${former} is deprecated and will be removed in ${formerFlagsEnd}: use ${present}\n`,
    ])
    expect(service.calls('GET /users')[0]?.path).toContain(query)
    expect((await home.run(['users', '--search', 'ada'])).stderr).toBe('')
  })

  it('no longer works under its former name in the version that was told', () => {
    const minorOf = (version: string) => Number(version.split('.')[1])
    const { version } = read('package.json') as { version: string }
    const former = flags.filter(({ aliases = [] }) => aliases.length > 0)
    expect(former.length).toBeGreaterThan(0)
    expect(minorOf(version)).toBeLessThan(minorOf(formerFlagsEnd))
  })
})

describe('a command', () => {
  it('to list or delete is also ls or rm, and the other way round', async () => {
    expect((await home.run(['keys', 'ls', '--json'])).code).toBe(0)
    expect(service.calls('GET /api-keys')).toHaveLength(1)
    expect((await home.run(['enroll', 'rm', uuid(7), '--yes'])).stdout).toBe('Enrollment key deleted\n')
    expect((await home.run(['context', 'list', '-q'])).stdout).toBe('test\n')
    const help = await home.run(['keys', 'ls', '--help'])
    expect(help.stdout).toBe((await home.run(['keys', 'list', '--help'])).stdout)
    const none = await home.run(['audit', 'rm', '--json'])
    expect([none.code, failureOf(none).message]).toEqual([2, 'There is no command "audit rm"'])
  })
})
