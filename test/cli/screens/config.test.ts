import type { Command } from '@oclif/core/command'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatMarkdown } from '../../../src/cli/config/format.ts'
import { displayWidth } from '../../../src/cli/text-width.ts'
import type { Change } from '../../../src/configuration/contract.ts'
import { expectGolden } from '../../laws/golden.ts'
import { FakeService, uuid } from '../fake-service.ts'
import { Home } from '../run.ts'
import { readable, screenOf } from './screen.ts'

const culprit = (field: string | null, action: string) => ({
  field,
  by: 'grace@example.com',
  at: '2026-01-31T12:00:00.000Z',
  action,
  entryId: uuid(900),
})
const change = (about: Pick<Change, 'action' | 'section' | 'name'> & Partial<Change>): Change => ({
  org: 'blue-bakery',
  renamedFrom: null,
  id: uuid(1),
  before: null,
  after: null,
  ends: null,
  warning: null,
  refused: null,
  ...about,
})
const changes: Change[] = [
  change({ action: 'adopt', section: 'organizations', org: null, name: 'blue-bakery' }),
  change({
    action: 'update',
    section: 'organizations',
    org: null,
    name: 'green-garage',
    before: { name: 'Green', maxDevices: 50 },
    after: { name: 'Green Garage', maxDevices: null },
  }),
  change({
    action: 'delete',
    section: 'organizations',
    org: null,
    name: 'old-mill',
    ends: {
      devices: 1250,
      apiKeys: 2,
      enrollmentKeys: 1,
      members: 14,
      sites: 3,
      webhooks: 1,
      ssoProviders: 1,
    },
  }),
  change({
    action: 'create',
    section: 'sites',
    name: 'Main Office',
    id: null,
    after: { timezone: 'Europe/Paris' },
  }),
  change({
    action: 'update',
    section: 'sites',
    name: 'Store',
    renamedFrom: 'Shop',
    before: { name: 'Shop', contact: null },
    after: {
      name: 'Store',
      contact: { name: 'Ada Lovelace', phone: '+44 20 7946 0000', hours: 'from 9 to 5' },
    },
  }),
  change({
    action: 'create',
    section: 'roles',
    name: 'Night Shift',
    id: null,
    after: {},
    refused: 'You can grant only permissions that you hold, and devices:execute is not one of yours',
  }),
  change({
    action: 'delete',
    section: 'deviceGroups',
    name: 'Tills',
    ends: { groupMembers: 12 },
    refused: 'would delete 3 of 4 deviceGroups, more than a tenth: --prune-limit 3 allows it',
  }),
  change({
    action: 'create',
    section: 'trustPolicies',
    name: 'Releases',
    id: null,
    after: {},
    warning:
      'Every branch and every pull request of the repository is trusted: name its environment or ref as well',
  }),
  change({
    action: 'update',
    section: 'webhooks',
    name: 'Tickets',
    before: { secret: '********' },
    after: { secret: '******** (changed)' },
  }),
]
const left = (section: Change['section'], name: string) => ({
  section,
  org: 'blue-bakery',
  name,
})
const plan = {
  set: 'production',
  version: '0'.repeat(64),
  plannedAt: '2026-02-01T12:00:00.000Z',
  changes,
  left: [left('scripts', 'Clean'), left('sites', 'Annex')],
  totals: { create: 3, update: 3, delete: 2, adopt: 1, release: 0, refused: 2, left: 2 },
}
const drift = {
  ...plan,
  left: [],
  totals: { ...plan.totals, create: 1, update: 2, delete: 0, adopt: 0, refused: 0, left: 0 },
  changes: [
    change({
      action: 'update',
      section: 'organizations',
      org: null,
      name: 'green-garage',
      before: { name: 'Green', maxDevices: 50 },
      after: { name: 'Green Garage', maxDevices: null },
      culprits: [culprit('name', 'organization.update'), culprit('maxDevices', 'organization.create')],
    }),
    change({
      action: 'create',
      section: 'sites',
      name: 'Main Office',
      id: null,
      after: {},
      culprits: [culprit(null, 'site.delete')],
    }),
    change({
      action: 'update',
      section: 'scripts',
      org: null,
      name: 'Clean',
      before: { content: 'true' },
      after: { content: 'false' },
      culprits: [],
    }),
  ],
}

const home = new Home()
const file = home.write('production.yaml', 'sites: []\n')
const service = new FakeService({
  'POST /config/plan': ({ body }) => ({
    body: (body as { culprits?: boolean }).culprits ? drift : plan,
  }),
})
beforeAll(() => service.start())
afterAll(async () => {
  await service.stop()
  home.remove()
})

type Load = () => Promise<{ default: Command.Class }>
const commands: [name: string, load: Load][] = [
  ['config-plan', () => import('../../../commands/config/plan.ts')],
  ['config-diff', () => import('../../../commands/config/diff.ts')],
]
const screen = (load: Load, argv: string[], columns: number | undefined) =>
  screenOf(load, [file, '--set', 'production', ...argv], { url: service.url, columns })
const expectScreen = (name: string, text: string) =>
  expectGolden(`../cli/screens/${name}.txt`, readable(text))

describe('on a terminal of 80 columns', () => {
  it.each(commands)('svc %s cuts nothing, and no line wraps', async (name, load) => {
    const text = readable(await screen(load, [], 80))
    expectScreen(`${name}-80`, text)
    const lines = text.replaceAll(/␛\[\d+m/g, '').split('\n')
    for (const line of lines) expect([line, displayWidth(line) <= 80]).toEqual([line, true])
    expect(text).not.toContain('…')
  })
})

it.each(commands)(
  'in a pipe svc %s has a line for each thing that it says, without color',
  async (name, load) => {
    const text = await screen(load, [], undefined)
    expectScreen(`${name}-pipe`, text)
    expect(text).not.toContain('\u001b')
  },
)

describe('a comment on a pull request', () => {
  it('has totals first, and every change with what it says', async () => {
    expectScreen('config-plan-markdown', await screen(commands[0]![1], ['--markdown'], 80))
  })

  it('has as many changes as fit into 60,000 characters, and says how many more there are', () => {
    const many = Array.from({ length: 2000 }, (_, n) =>
      change({ action: 'create', section: 'scripts', name: `Script ${n}`, id: null }),
    )
    const whole = (count: number) =>
      formatMarkdown({
        ...plan,
        left: [],
        changes: many.slice(0, count),
        totals: { ...plan.totals, create: count, update: 0, delete: 0, adopt: 0, refused: 0 },
      })
    const text = whole(2000)
    const [head, , ...rows] = text.trimEnd().split('\n')
    expect(head).toBe('### Set `production`: 2000 to create')
    const [, more] = /^and (\d+) more$/.exec(rows.at(-1)!)!
    // Without the empty line before it.
    const shown = rows.slice(0, -2)
    expect(shown.length + Number(more)).toBe(2000)
    expect(shown.at(-1)).toBe(`- **create** scripts \`blue-bakery / Script ${shown.length - 1}\``)
    expect(text.length).toBeLessThanOrEqual(60_000)
    expect(text.length + shown.at(-1)!.length + 1).toBeGreaterThan(60_000)
    expect(whole(shown.length)).not.toMatch(/ more$/m)
  })
})
