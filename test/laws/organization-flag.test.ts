import { afterAll, beforeAll, expect, it } from 'vitest'
import { manifestCommands } from '../cli/manifest.ts'
import { Home } from '../cli/run.ts'
import { alone, type Command, local, typed } from './command-lines.ts'
import { HostileService } from './hostile-service.ts'
import { runLines } from './run-lines.ts'

/** Commands about what is in no organization, or named by an id alone: for them the organization of a context has no meaning. */
const withoutOrganization = [
  'context:add',
  'config:explain',
  'openapi',
  'api',
  // The service as a whole: system scope.
  'agent:promote',
  'agent:rollback',
  'agent:sync-release',
  'agent:versions',
  'agent:versions:delete',
  'agent:versions:list',
  'agent:versions:show',
  'agent:rollout',
  'agent:rollout:abort',
  'agent:rollout:devices',
  'agent:rollout:halt',
  'agent:rollout:list',
  'agent:rollout:resume',
  'agent:rollout:roll-back',
  'agent:rollout:status',
  'dead-letters',
  'dead-letters:delete',
  'dead-letters:list',
  'dead-letters:retry',
  'dead-letters:show',
  // Those who are signed in or are about to be. A switch takes --org in place of its argument.
  'auth:approve',
  'auth:status',
  'auth:switch',
  'invite:accept',
  'invite:list',
  'logout',
  'whoami',
  'mfa:disable',
  'mfa:enable',
  'mfa:recovery',
  'mfa:setup',
  'mfa:sms',
  'password:change',
  'password:forgot',
  'password:reset',
  'profile',
  'profile:show',
  'profile:update',
  // Tenants themselves, named by their argument.
  'orgs',
  'orgs:create',
  'orgs:delete',
  'orgs:import',
  'orgs:list',
  'orgs:order',
  'orgs:show',
  'orgs:update',
  'partners',
  'partners:create',
  'partners:delete',
  'partners:list',
  'partners:me',
  'partners:settings',
  'partners:show',
  'partners:update',
  'sso:check',
  // The same for everybody.
  'filters:fields',
  'roles:available',
  'roles:permissions',
  'sso:presets',
  // Entries have no names; their ids say where they are.
  'audit:proof',
  'audit:show',
]

/** Where the first example names nothing that is in an organization. */
const otherwise: Readonly<Record<string, string[]>> = {
  'audit:verify': ['audit', 'verify'],
  'filters:explain': ['filters', 'explain', 'Somebody'],
}

const orgId = '0197c1c4-0000-7000-8000-00000000f1a6'

const commands = Object.entries(manifestCommands<Command>()).filter(
  ([id, { flags }]) => 'org' in flags && ![...alone, ...local].includes(id),
)

const home = new Home()
const service = new HostileService('likely')

beforeAll(async () => {
  const url = await service.start()
  const unsaved = ['filters', 'preview', '--where', 'status = online', '--org', orgId]
  const lines = [
    ...commands.map(([id, command]) => [id, lineOf(id, command)] as const),
    ['unsaved', unsaved] as const,
  ]
  const runs = lines.map(([id, argv]) => ({ id, argv, url: `${url}/${id}` }))
  await runLines(home, runs, { signedInTo: url, longest: 100_000 })
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

/** A command as its first example has it, in the organization, and with names of records: these are looked up there. */
function lineOf(id: string, command: Command): string[] {
  const words = otherwise[id] ?? typed(id, command)
  const at = words.indexOf('--org')
  const others = words.filter((_, i) => at === -1 || (i !== at && i !== at + 1))
  return [...others.map((word) => (/^[0-9a-f]{8}-/.test(word) ? 'Somebody' : word)), '--org', orgId]
}

const reached = (id: string) =>
  service.asked.some((line) => line.includes(` /${id}/`) && line.includes(orgId))

it('--org reaches the service, or the command is about no organization', () => {
  const ignoring = commands.map(([id]) => id).filter((id) => !reached(id))
  expect(ignoring.sort()).toEqual(withoutOrganization.toSorted())
})

it('--org narrows a preview of conditions that are not saved', () => {
  expect(reached('unsaved')).toBe(true)
})
