import { afterAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { exitCodes } from '../../src/cli/exit-codes.ts'
import { writtenOperators } from '../../src/cli/filter-operators.ts'
import { helpPages } from '../../src/cli/help-pages.ts'
import { displayWidth } from '../../src/cli/text-width.ts'
import { topicDescriptions } from '../../src/cli/topics.ts'
import { entriesOf, routeOf } from '../../src/core/endpoint.ts'
import { errors } from '../../src/core/errors.ts'
import { negations } from '../../src/filters/comparisons.ts'
import { Home } from './run.ts'

type Described = {
  id: string
  summary: string | null
  examples: string[]
  flags: { name: string; description: string | null; options: string[] | null; required: boolean }[]
  args: { name: string; description: string | null }[]
  endpoints: string[]
}

const home = new Home()
const commands = JSON.parse((await home.run(['commands', '--json'])).stdout).data as Described[]
const command = (id: string) => commands.find((one) => one.id === id)!

afterAll(() => home.remove())

describe('every command', () => {
  it.each(commands.map((one) => [one.id, one] as const))(
    '%s has a summary, examples and described flags',
    (_, one) => {
      expect(one.summary).toBeTruthy()
      expect(one.examples.length).toBeGreaterThan(0)
      for (const { description } of [...one.flags, ...one.args]) expect(description).toBeTruthy()
    },
  )

  it('has the same output flags', () => {
    const outputs = ['json', 'output', 'columns', 'csv', 'quiet', 'no-header']
    // Long-running programs have their own output.
    const special = ['serve', 'help', 'agent run', 'agent simulate']
    for (const one of commands.filter(({ id }) => !special.includes(id) && !id.startsWith('db'))) {
      expect(one.flags.map(({ name }) => name)).toEqual(expect.arrayContaining(outputs))
    }
  })
})

it('every command group has a description, and every description a group', () => {
  const above = commands.flatMap(({ id }) => {
    const words = id.split(' ')
    return words.slice(1).map((_, at) => words.slice(0, at + 1).join(':'))
  })
  const alone = (name: string) => !commands.some(({ id }) => id === name.replaceAll(':', ' '))
  const named = Object.keys(topicDescriptions)
  expect([...new Set(above)].filter((name) => alone(name) && !named.includes(name))).toEqual([])
  expect(named.filter((name) => !above.includes(name))).toEqual([])
})

it('every endpoint for people has a command, and every command names endpoints that are there', () => {
  // Called by agents, partly without their token.
  const ofAgents = /^(service|agents|agentDownloads)\.|^agentVersions\.(latest|info)$/
  // Opened in a browser: pages of the service, and redirect targets of identity providers.
  const ofBrowsers =
    /^auth\.(register|registerPartner|verifyEmail)$|^ssoSignIn\.(login|callback|acs|metadata)$/
  const called = new Set(commands.flatMap(({ endpoints }) => endpoints))
  const missing = entriesOf(api).filter(
    ({ name, entry }) =>
      entry.access.who !== 'agent' &&
      !ofAgents.test(name) &&
      !ofBrowsers.test(name) &&
      !called.has(routeOf(entry)),
  )
  expect(missing.map(({ name }) => name)).toEqual([])
  const known = new Set(entriesOf(api).map(({ entry }) => routeOf(entry)))
  expect([...called].filter((route) => !known.has(route))).toEqual([])
})

describe('the flags from the contract', () => {
  it('include choices, types and required fields', () => {
    const flags = Object.fromEntries(command('orgs create').flags.map((flag) => [flag.name, flag]))
    expect(flags.type?.options).toEqual(['customer', 'internal'])
    expect(flags['max-devices']?.description).toContain('Most devices the organization may enroll')
    expect(flags.name?.description).toContain('(required)')
    expect(Object.keys(flags)).toEqual(expect.arrayContaining(['partner', 'dry-run', 'if-not-exists']))
  })

  it('include --dry-run for changes, and --yes for deletions', () => {
    const has = (id: string, name: string) => command(id).flags.some((flag) => flag.name === name)
    for (const { id } of commands.filter(({ id }) => / (create|delete|rotate)$/.test(id))) {
      expect([id, has(id, 'dry-run')]).toEqual([id, true])
      expect([id, has(id, 'yes')]).toEqual([id, id.endsWith('delete')])
      expect([id, has(id, 'if-not-exists')]).toEqual([id, id.endsWith('create')])
    }
  })
})

describe('--dry-run', () => {
  /** Commands that send more than a GET and have no dry run, by the reason. */
  const proof = 'its request is a proof that it takes, such as a code or a password, and says nothing else'
  const without: Record<string, string> = {
    'agent run': 'it is a program that runs',
    'audit export': 'it reads; the request is a POST because it is audited',
    'auth approve': 'it says what asks, and asks, before anything is approved',
    'auth switch': 'it changes who this terminal is, and the way back is the same command',
    'config apply': 'svc config plan is its dry run',
    'config diff': 'it changes nothing',
    'config plan': 'it changes nothing',
    'filters preview': 'it reads; the filter is the body of the request',
    'invite accept': proof,
    login: proof,
    logout: 'it ends what this terminal has',
    'mfa disable': proof,
    'mfa enable': proof,
    'mfa sms': proof,
    'password change': proof,
    'password reset': proof,
  }

  it('is a flag of every command that changes something at the service, or there is a reason', () => {
    const changing = commands.filter(({ endpoints }) => endpoints.some((route) => !route.startsWith('GET ')))
    const lacking = changing.filter(({ flags }) => !flags.some(({ name }) => name === 'dry-run'))
    expect(lacking.map(({ id }) => id).sort()).toEqual(Object.keys(without).sort())
  })
})

describe('abbreviations', () => {
  it.each([
    ['org'],
    ['devic', 'list'],
    ['devices', 'lis'],
    ['audit', 'verif'],
    ['orgs', 'del', 'a', '--yes'],
  ])('of commands are refused: svc %s %s', async (...words) => {
    const { code, stdout, stderr } = await home.run(words.filter(Boolean))
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/^Error: (There is no command|Unexpected argument)/)
  })

  it.each(['--jso', '--col=id', '--no-head', '--url=http://127.0.0.1:1 --tok=-'])(
    'of flags are refused: %s',
    async (flags) => {
      const { code, stderr } = await home.run(['orgs', ...flags.split(' ')])
      expect([code, stderr]).toEqual([2, expect.stringMatching(/^Error: Unknown flag/)])
    },
  )
})

describe('help', () => {
  it('shows examples first', async () => {
    const { stdout, code } = await home.run(['orgs', 'create', '--help'])
    expect(code).toBe(0)
    expect(stdout.indexOf('EXAMPLES')).toBeLessThan(stdout.indexOf('USAGE'))
    expect(stdout).toContain('$ svc orgs create --name "Blue Bakery"')
    expect((await home.run(['help', 'orgs', 'create'])).stdout).toBe(stdout)
    expect((await home.run(['orgs', 'create', '-h'])).stdout).toBe(stdout)
  })

  it('lists every group', async () => {
    const { stdout } = await home.run([])
    for (const name of ['orgs', 'sites', 'enroll', 'devices', 'audit']) expect(stdout).toContain(`  ${name} `)
  })

  it.each(Object.keys(helpPages))('has a page about %s', async (name) => {
    expect((await home.run(['help', name])).stdout).toBe(helpPages[name])
    const wide = helpPages[name]!.split('\n').filter((line) => displayWidth(line) > 80)
    expect(wide).toEqual([])
  })

  it('says which operators of filters are negative as the service has it', () => {
    const negative = Object.entries(writtenOperators).filter(([, one]) => one.negative)
    expect(negative.map(([operator]) => operator)).toEqual(Object.keys(negations))
  })

  it('lists every exit code', () => {
    const published = [...helpPages['exit-codes']!.matchAll(/^ {2}(\d+) /gm)].map(([, code]) => Number(code))
    const used = new Set<number>([
      ...Object.values(exitCodes),
      ...Object.values(errors).map(({ exit }) => exit),
    ])
    expect(new Set(published)).toEqual(used)
  })

  it('for a group without a list command shows its commands', async () => {
    const { stdout, code } = await home.run(['mfa'])
    expect(code).toBe(0)
    expect(stdout).toContain('mfa setup')
  })
})
