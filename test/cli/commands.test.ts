import { afterAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { exits } from '../../src/cli/exit.ts'
import { groups, pages } from '../../src/cli/topics.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { errors } from '../../src/core/errors.ts'
import { Home } from './run.ts'

type Described = {
  id: string
  summary: string | null
  examples: string[]
  flags: { name: string; description: string | null; options: string[] | null; required: boolean }[]
  args: { name: string; description: string | null }[]
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

  it('has one way to say how the answer looks', () => {
    const outputs = ['json', 'output', 'columns', 'csv', 'quiet', 'no-header']
    // Programs that run until they are told to end say what happens meanwhile.
    const special = ['serve', 'help', 'agent run', 'agent simulate']
    for (const one of commands.filter(({ id }) => !special.includes(id) && !id.startsWith('db'))) {
      expect(one.flags.map(({ name }) => name)).toEqual(expect.arrayContaining(outputs))
    }
  })
})

it('every group of commands says what it is for, and no other is named', () => {
  const above = commands.flatMap(({ id }) => {
    const words = id.split(' ')
    return words.slice(1).map((_, at) => words.slice(0, at + 1).join(':'))
  })
  const alone = (name: string) => !commands.some(({ id }) => id === name.replaceAll(':', ' '))
  const named = Object.keys(groups)
  expect([...new Set(above)].filter((name) => alone(name) && !named.includes(name))).toEqual([])
  expect(named.filter((name) => !above.includes(name))).toEqual([])
})

it('every endpoint a person can call has a command', () => {
  const covered: Record<string, string | string[]> = {
    'auth.login': 'login',
    'auth.verifyMfa': 'login',
    'auth.logout': 'logout',
    'auth.me': 'whoami',
    'auth.setupMfa': 'mfa setup',
    'auth.enableMfa': 'mfa enable',
    'auth.refresh': 'orgs',
    'auth.previewInvite': 'invite accept',
    'auth.acceptInvite': 'invite accept',
    'users.me': 'profile',
    'users.changeMe': 'profile update',
    'users.list': 'users',
    'users.show': 'users show',
    'users.roles': 'users roles',
    'users.invite': 'users invite',
    'users.resendInvite': 'users resend',
    'users.change': 'users update',
    'users.remove': 'users remove',
    'users.assignRole': 'users role',
    'users.changeAccess': 'users access',
    'users.resetMfa': 'users reset-mfa',
    'users.signOut': 'users sign-out',
    'users.unlock': 'users unlock',
    'partners.list': 'partners',
    'partners.create': 'partners create',
    'partners.show': 'partners show',
    'partners.me': 'partners me',
    'partners.changeMe': 'partners settings',
    'partners.update': 'partners update',
    'partners.remove': 'partners delete',
    'orgs.list': 'orgs',
    'orgs.page': 'orgs',
    'orgs.create': 'orgs create',
    'orgs.show': 'orgs show',
    'orgs.update': 'orgs update',
    'orgs.order': 'orgs order',
    'orgs.remove': 'orgs delete',
    'sites.list': 'sites',
    'sites.create': 'sites create',
    'sites.show': 'sites show',
    'sites.update': 'sites update',
    'sites.remove': 'sites delete',
    'deviceGroups.list': 'groups',
    'deviceGroups.create': 'groups create',
    'deviceGroups.show': 'groups show',
    'deviceGroups.update': 'groups update',
    'deviceGroups.remove': 'groups delete',
    'deviceGroups.devices': 'groups devices',
    'deviceGroups.add': 'groups add',
    'deviceGroups.take': 'groups remove',
    'deviceGroups.pin': 'groups pin',
    'deviceGroups.unpin': 'groups unpin',
    'deviceGroups.log': 'groups log',
    'scripts.list': 'scripts',
    'scripts.create': 'scripts create',
    'scripts.show': 'scripts show',
    'scripts.update': 'scripts update',
    'scripts.remove': 'scripts delete',
    'alerts.list': 'alerts',
    'alerts.create': 'alerts create',
    'alerts.show': 'alerts show',
    'alerts.acknowledge': 'alerts acknowledge',
    'alerts.resolve': 'alerts resolve',
    'alerts.escalate': 'alerts escalate',
    'enrollmentKeys.list': 'enroll',
    'enrollmentKeys.create': 'enroll create',
    'enrollmentKeys.show': 'enroll show',
    'enrollmentKeys.rotate': 'enroll rotate',
    'enrollmentKeys.remove': 'enroll delete',
    'devices.list': 'devices',
    'devices.show': 'devices show',
    'liveLogs.list': 'logs live list',
    'liveLogs.show': 'logs live show',
    'liveLogs.events': 'logs live query',
    'liveLogs.record': 'logs live record',
    'deviceLogs.show': 'logs live show',
    'deviceLogs.events': 'logs live query',
    'deviceLogs.record': 'logs live record',
    'logLevels.set': 'logs level',
    'roles.list': 'roles',
    'roles.create': 'roles create',
    'roles.available': 'roles available',
    'roles.show': 'roles show',
    'roles.update': 'roles update',
    'roles.remove': 'roles delete',
    'roles.clone': 'roles clone',
    'roles.holders': 'roles users',
    'roles.effective': 'roles effective',
    'permissions.catalog': 'roles permissions',
    'permissions.canI': 'can-i',
    'permissions.explain': 'explain',
    'sso.presets': 'sso presets',
    'sso.check': 'sso check',
    'ssoProviders.list': 'sso',
    'ssoProviders.create': 'sso create',
    'ssoProviders.show': 'sso show',
    'ssoProviders.update': 'sso update',
    'ssoProviders.remove': 'sso delete',
    'ssoProviders.setStatus': 'sso activate',
    'ssoProviders.test': 'sso test',
    'ssoSignIn.exchange': 'login',
    'ssoTrials.begin': 'sso test',
    'ssoTrials.show': 'sso test',
    'trust.exchange': 'login',
    'trustPolicies.list': 'trust',
    'trustPolicies.create': 'trust create',
    'trustPolicies.show': 'trust show',
    'trustPolicies.update': 'trust update',
    'trustPolicies.remove': 'trust delete',
    'trustPolicies.test': 'trust test',
    'deadLetters.list': 'dead-letters',
    'deadLetters.show': 'dead-letters show',
    'deadLetters.retry': 'dead-letters retry',
    'deadLetters.remove': 'dead-letters delete',
    'agentVersions.list': 'agent versions',
    'agentVersions.show': 'agent versions show',
    'agentVersions.sync': 'agent sync-release',
    'agentVersions.promote': 'agent promote',
    'agentVersions.rollback': 'agent rollback',
    'agentVersions.remove': 'agent versions delete',
    'agentRollouts.list': 'agent rollout',
    'agentRollouts.start': 'agent rollout start',
    'agentRollouts.show': 'agent rollout status',
    'agentRollouts.devices': 'agent rollout devices',
    'agentRollouts.halt': 'agent rollout halt',
    'agentRollouts.resume': 'agent rollout resume',
    'agentRollouts.abort': 'agent rollout abort',
    'agentRollouts.rollBack': 'agent rollout roll-back',
    'auditLogs.flat': 'audit',
    'auditLogs.list': 'audit',
    'auditLogs.show': 'audit show',
    'auditLogs.search': 'audit search',
    'auditLogs.heads': 'audit verify',
    'auditLogs.chain': 'audit export',
    'auditCheckpoints.checkpoint': 'audit checkpoint',
    'auditCheckpoints.proof': 'audit proof',
    'auditCheckpoints.key': 'audit key',
    'auditExports.download': 'audit export',
    'auditExports.create': 'audit export',
    'auditReports.users': 'audit report',
    'auditReports.security': 'audit report',
    'auditReports.compliance': 'audit report',
    'auditReports.stats': 'audit stats',
  }
  // Asked by agents, without their token as well.
  const ofAgents = /^(service|agents|agentDownloads)\.|^agentVersions\.(latest|info)$/
  const callable = entriesOf(api).filter(
    ({ name, entry }) => entry.access.who !== 'agent' && !ofAgents.test(name),
  )
  for (const { name } of callable)
    expect([name, command(String(covered[name]))?.id]).toEqual([name, covered[name]])
})

describe('flags come from the contract', () => {
  it('choices, kinds and what is required', () => {
    const flags = Object.fromEntries(command('orgs create').flags.map((flag) => [flag.name, flag]))
    expect(flags.type?.options).toEqual(['customer', 'internal'])
    expect(flags['max-devices']?.description).toContain('Most devices the organization may enroll')
    expect(flags.name?.description).toContain('(required)')
    expect(Object.keys(flags)).toEqual(expect.arrayContaining(['partner', 'dry-run', 'if-not-exists']))
  })

  it('changes can be tried without effect, deletions have to be confirmed', () => {
    const has = (id: string, name: string) => command(id).flags.some((flag) => flag.name === name)
    for (const { id } of commands.filter(({ id }) => / (create|delete|rotate)$/.test(id))) {
      expect([id, has(id, 'dry-run')]).toEqual([id, true])
      expect([id, has(id, 'yes')]).toEqual([id, id.endsWith('delete')])
      expect([id, has(id, 'if-not-exists')]).toEqual([id, id.endsWith('create')])
    }
  })
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

  it.each(Object.keys(pages))('has a page about %s', async (name) => {
    expect((await home.run(['help', name])).stdout).toBe(pages[name])
  })

  it('publishes every exit code', () => {
    const published = [...pages['exit-codes']!.matchAll(/^ {2}(\d+) /gm)].map(([, code]) => Number(code))
    const used = new Set<number>([...Object.values(exits), ...Object.values(errors).map(({ exit }) => exit)])
    expect(new Set(published)).toEqual(used)
  })

  it('of a topic without a list shows its commands', async () => {
    const { stdout, code } = await home.run(['mfa'])
    expect(code).toBe(0)
    expect(stdout).toContain('mfa setup')
  })
})
