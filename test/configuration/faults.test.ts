import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, it } from 'vitest'
import { liveService } from '../cli/live-service.ts'
import { expectGolden } from '../laws/golden.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addPartnerUser, addRole } from '../world.ts'
import { configurationOf } from './fixture.ts'

/** By their names. */
const broken = {
  'alias.yaml': `sites:
  - *nothing
  - &itself { org: bakery, name: Store, settings: { within: *itself } }
`,
  'comma.json': '{ "sites": [{ "org": "bakery" "name": "Store" }] }',
  'open.yaml': 'sites:\n  - { org: bakery, name: Store\nscripts: []\n',
  'tab.yaml': 'sites:\n\t- { org: bakery, name: Store }\n',
  'twice.yaml': 'sites:\n  - org: bakery\n    name: Store\n    name: Again\n',
}

const live = liveService()
const { home } = live

beforeAll(() => {
  cpSync(join(import.meta.dirname, 'faults'), join(home.path, 'faults'), { recursive: true })
  writeFileSync(join(home.path, 'above.sh'), 'true\n')
  symlinkSync('../above.sh', join(home.path, 'faults/link.sh'))
  for (const folder of ['linked', 'broken']) mkdirSync(join(home.path, folder))
  for (const [name, text] of Object.entries(broken)) writeFileSync(join(home.path, 'broken', name), text)
  symlinkSync('../above.sh', join(home.path, 'linked/link.yaml'))
})

const plan = async (token: string, files: string[]) => {
  const { code, stdout, stderr } = await home.run(['config', 'plan', ...files, '--set', 'ours'], {
    env: { SVC_URL: live.service.url, SVC_TOKEN: token },
  })
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  return stderr
}
const said = (name: string, text: string) => expectGolden(`../configuration/faults/${name}.txt`, text)

it('names every kind of fault at once, and what is refused besides, each with its file, line and column', async () => {
  const acme = configurationOf(live.service)(live.world.tokens.acme)
  await acme.apply({ sites: [{ org: 'bakery', name: 'Theirs' }] }, { set: 'theirs' })
  await acme.apply(
    {
      sites: ['Ours', 'Former'].map((name) => ({ org: 'bakery', name })),
      deviceGroups: [{ org: 'bakery', name: 'Fixed' }],
    },
    { set: 'ours' },
  )
  const permissions = [
    'config:read',
    'organizations:read',
    'organizations:write',
    'sites:read',
    'sites:write',
    'users:read',
    'users:write',
    'users:invite',
    'devices:read',
    'devices:write',
    'scripts:read',
  ]
  const { acme: partnerId } = live.world.partners
  const role = await addRole(live.service, { partnerId }, 'Planner', permissions)
  const planner = await addPartnerUser(live.service, 'planner', partnerId, 'all', role)
  const before = await dump(live.service.storage)
  const files = ['form.yaml', 'state.yaml', 'twice.json'].map((name) => `faults/${name}`)
  const text = await plan(planner, files)
  said('all', text)
  expect(text).not.toContain('hush-hush')
  expect(changed(before, await dump(live.service.storage))).toEqual([])
})

it('names a section that may not be read with the faults that are found without it', async () => {
  const { id } = live.world.orgs.bakery
  const role = await addRole(live.service, id, 'Reader', ['config:read', 'sites:read'])
  const reader = await addOrgUser(live.service, 'reader', id, { role })
  said('unreadable-section', await plan(reader, ['faults/form.yaml']))
})

// A file that cannot be read, or is not YAML, says nothing that could be at fault: only such faults are named, of all files.
it('names every file that is not to be read, and every fault of syntax, before any other', async () => {
  const files = ['none.yaml', 'linked', 'broken', 'faults/form.yaml']
  said('broken', await plan(live.world.tokens.acme, files))
})
