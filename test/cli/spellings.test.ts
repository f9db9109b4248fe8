import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formerFlagsEnd } from '../../src/cli/flags.ts'
import { Program } from '../../src/cli/program.ts'
import { eachNth } from '../depth.ts'
import { FakeService, organization, page, uuid } from './fake-service.ts'
import { manifestCommands } from './manifest.ts'
import { failureOf, Home } from './run.ts'

type Flag = {
  name: string
  type: string
  multiple?: boolean
  aliases?: string[]
  helpValue?: string
}
type Arg = { name: string; required?: boolean; options?: string[] }

type Command = { flags: Record<string, Flag>; args: Record<string, Arg>; endpoints?: string[] }

const root = new URL('../../', import.meta.url)
const commands = manifestCommands<Command>()
const flags = Object.entries(commands).flatMap(([id, { flags }]) =>
  Object.values(flags).map((flag) => ({ id, ...flag })),
)

const home = new Home()
const service = new FakeService({
  'GET /orgs/': { body: { data: [organization(10, 'blue-bakery', 'Blue Bakery')] } },
  'GET /users': page([]),
  'GET /api-keys': page([]),
  [`DELETE /api-keys/${uuid(7)}`]: { body: { success: true, message: 'API key revoked successfully' } },
  [`DELETE /users/${uuid(7)}`]: { body: { success: true } },
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

/** Values of flags that take no id. */
const values: Record<string, string> = { TIME: '2026-01-31', N: '1', TYPES: 'device.offline' }

/** What a command takes besides its arguments. */
const needed = (id: string): string[] => {
  const more: Record<string, string[]> = {
    'users:invite': ['--name', 'Ada', '--org', uuid(10), '--role', uuid(9)],
    'audit:export': ['--format', 'json'],
    'audit:proof': [uuid(7)],
    'audit:report': ['security'],
    'webhooks:listen': ['--webhook', uuid(7), '--forward-to', 'http://127.0.0.1:9/'],
  }
  return more[id] ?? []
}

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

  const former = flags.flatMap(({ aliases = [], ...flag }) => aliases.map((alias) => ({ ...flag, alias })))

  it('works under each former name as under its present one, with a warning', {
    timeout: 300_000,
  }, async () => {
    /** What a command sends, with this spelling of a flag. */
    const sent = async ({ id, helpValue = '' }: (typeof former)[number], flag: string) => {
      service.seen.length = 0
      const args = Object.values(commands[id]!.args).filter(({ required }) => required)
      const given = args.map(({ name, options }) =>
        name === 'email' ? 'ada@example.com' : (options?.[0] ?? uuid(7)),
      )
      const value = values[helpValue] ?? uuid(8)
      const command = [...id.split(':'), ...given, ...needed(id), `--${flag}`, value]
      const { code, stdout, stderr } = await home.run(command, { env: { SVC_TIMEOUT: '5s' } })
      const requests = service.seen.map(({ method, path, body }) => ({ method, path, body }))
      return { code, stdout, stderr, requests }
    }
    // `npm test` tries a fourth of them.
    for (const flag of eachNth(4, former)) {
      const present = await sent(flag, flag.name)
      const { stderr, ...before } = await sent(flag, flag.alias)
      const warning = `Warning: --${flag.alias} is deprecated and will be removed in ${formerFlagsEnd}: use --${flag.name}\n`
      expect([flag.id, stderr]).toEqual([flag.id, warning + present.stderr])
      expect([flag.id, before]).toMatchObject([flag.id, { code: present.code, requests: present.requests }])
      expect([flag.id, present.requests.length]).not.toEqual([flag.id, 0])
    }
  })

  it('no longer works under its former name in the version that was told', () => {
    const minorOf = (version: string) => Number(version.split('.')[1])
    const { version } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as { version: string }
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
    expect((await home.run(['keys', 'rm', uuid(7), '--yes'])).stdout).toBe('API key revoked successfully\n')
    expect((await home.run(['users', 'delete', uuid(7), '--yes'])).stdout).toBe('User removed\n')
    const none = await home.run(['audit', 'rm', '--json'])
    expect([none.code, failureOf(none).message]).toEqual([2, 'There is no command "audit rm"'])
  })

  const verbs: Record<string, string> = {
    list: 'GET',
    show: 'GET',
    create: 'POST',
    update: 'PATCH',
    delete: 'DELETE',
  }
  const verbOf = (id: string) => id.split(':').at(-1)!

  it('does what its verb says: list and show read, create, update and delete change', () => {
    const others = Object.entries(commands).flatMap(([id, { endpoints = [] }]) => {
      const method = verbs[verbOf(id)]
      const [first] = endpoints
      return method && first && !first.startsWith(`${method} `) ? [`${id}: ${first}`] : []
    })
    expect(others).toEqual([])
  })

  it('that deletes a record is delete and rm, whatever else it is called', async () => {
    const program = await Program.open({ root: fileURLToPath(root) })
    const deletions = Object.entries(commands).filter(([, { endpoints = [] }]) =>
      /^DELETE (\/[a-z-]+)+\/:\w+(\/permanent)?$/.test(endpoints[0] ?? ''),
    )
    expect(deletions.length).toBeGreaterThan(10)
    const lacking = deletions.flatMap(([id]) => {
      const group = id.slice(0, id.lastIndexOf(':'))
      return ['delete', 'rm']
        .filter((verb) => program.findCommand(`${group}:${verb}`)?.id !== id)
        .map(() => id)
    })
    // It keeps the record, which devices delete removes.
    expect([...new Set(lacking)]).toEqual(['devices:decommission'])
  })
})
