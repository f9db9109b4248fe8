import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openMigrated, type TestDatabase } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let database: TestDatabase
let service: TestService
let world: World

beforeAll(async () => {
  database = await openMigrated('sqlite')
  service = await serviceOn(database)
  world = await buildWorld(service)
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const acme = (args: string[], env: Record<string, string> = {}, input?: string) =>
  home.run(args, {
    env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.acme, ...env },
    ...(input !== undefined && { input }),
  })
const file = (name: string, text: string) => home.write(name, text)

describe('svc config', () => {
  it('plans, applies, says what differs, and exports what was applied', async () => {
    const first = file(
      'store.yaml',
      `sites:
  - { org: bakery, name: Store, timezone: UTC }
scripts:
  - name: Clean
    osTypes: [linux]
    language: bash
    content: \${file:clean.sh}
    category: \${env:CATEGORY}
`,
    )
    file('clean.sh', `echo "$\${env:HOME}"\n`)
    const env = { CATEGORY: 'care' }
    const plan = await acme(['config', 'plan', first, '--set', 'store'], env)
    expect(plan).toMatchObject({
      code: 0,
      stdout: 'sites\n  + bakery / Store\nscripts\n  + Clean\nSet store: 2 to create\n',
    })
    expect((await acme(['config', 'diff', first, '--set', 'store'], env)).code).toBe(1)
    const refused = await acme(['config', 'apply', first, '--set', 'store', '--json'], env)
    expect([refused.code, failureOf(refused).message]).toEqual([2, 'Missing --yes'])
    const applied = await acme(['config', 'apply', first, '--set', 'store', '--revision', 'a1', '--yes'], env)
    expect([applied.code, applied.stderr]).toEqual([0, expect.stringMatching(/Applied as \S+: 2 to create/)])
    const same = await acme(['config', 'diff', first, '--set', 'store'], env)
    expect(same).toMatchObject({ code: 0, stdout: 'Set store: no changes\n' })
    const sets = await acme(['config', 'sets', '--columns', 'name,objects,revision', '--csv', '--no-header'])
    expect(sets.stdout).toBe('store,2,a1\n')

    const exported = await acme(['config', 'export'])
    expect(exported.code).toBe(0)
    expect(exported.stdout).toContain('# - webhooks: ')
    // What a script contains is no variable of the file.
    expect(exported.stdout).toContain(`$$\${env:HOME}`)
    const all = file('all.yaml', exported.stdout)
    const again = await acme(['config', 'plan', all, '--set', 'store', '--adopt', '--json'])
    const { changes } = JSON.parse(again.stdout) as { changes: { action: string }[] }
    expect(changes.filter(({ action }) => action !== 'adopt')).toEqual([])
  })

  it('says each fault with its file, line and column, all at once', async () => {
    const folder = join(home.path, 'faulty')
    mkdirSync(join(folder, 'more'), { recursive: true })
    writeFileSync(
      join(folder, 'a.yaml'),
      `# The first
sites:
  - org: nowhere
    name: One
  - org: bakery
    name: Two
    timezone: Mars
    colour: red
webhooks: []
`,
    )
    writeFileSync(
      join(folder, 'more', 'b.json'),
      `{
  "scripts": [
    { "name": "S", "language": "cobol",
      "osTypes": ["linux"], "content": "\${env:UNSET}" }
  ],
  "pets": []
}
`,
    )
    const failed = await acme(['config', 'plan', folder])
    expect(failed.code).toBe(2)
    const lines = failed.stderr.split('\n').map((line) => line.trim())
    const at = (place: string) => lines.filter((line) => line.startsWith(`${folder}/${place}:`))
    expect(lines[0]).toBe('Error: The configuration has 7 faults')
    expect(at('a.yaml:3:5')).toHaveLength(1)
    expect(at('a.yaml:7:5')).toHaveLength(1)
    expect(at('a.yaml:8:5')).toHaveLength(1)
    expect(at('a.yaml:9:1')[0]).toContain('is not covered yet')
    expect(at('more/b.json:3:20')).toHaveLength(1)
    expect(at('more/b.json:4:29')[0]).toContain('the variable UNSET is not set')
    expect(at('more/b.json:6:3')[0]).toContain('is not a section')
  })

  it('says faults of syntax, and what is no file', async () => {
    const broken = file('broken.yaml', 'sites:\n  - name: "x\n  : y\n')
    const failed = await acme(['config', 'plan', broken])
    expect([failed.code, failed.stderr]).toEqual([2, expect.stringMatching(/broken\.yaml:\d+:\d+: /)])
    expect((await acme(['config', 'plan', 'nothing.yaml'])).stderr).toContain('there is no such file')
    const bomb = file('bomb.yaml', bombOf(12))
    expect((await acme(['config', 'plan', bomb])).code).toBe(2)
  })

  it('takes anchors, JSON and standard input', async () => {
    const text =
      'sites:\n  - &site { org: bakery, name: Alpha, timezone: UTC }\n  - { <<: *site, name: Beta }\n'
    const merged = await acme(['config', 'plan', '-', '--set', 'anchors'], {}, text)
    expect(merged.stdout).toContain('2 to create')
    const anchored = 'sites:\n  - { org: &org bakery, name: Alpha }\n  - { org: *org, name: Beta }\n'
    const plan = await acme(['config', 'plan', '-', '--set', 'anchors'], {}, anchored)
    expect(plan.stdout).toContain('2 to create')
    const json = JSON.stringify({ sites: [{ org: 'bakery', name: 'Alpha' }] })
    expect((await acme(['config', 'plan', '-', '--set', 'anchors'], {}, json)).stdout).toContain(
      '1 to create',
    )
  })

  it('merges what has changed into a file, whose comments, order and variables stay', async () => {
    const text = `# Ours
sites:
  # Moved in 2025
  - name: Gate # by the road
    org: garage
    timezone: \${env:ZONE}
    settings: { color: red }
  - { org: garage, name: Gone }
`
    const files = file('gate.yaml', text)
    const env = { ZONE: 'Europe/Rome' }
    expect((await acme(['config', 'apply', files, '--set', 'gate', '--yes'], env)).code).toBe(0)
    const client = service.client(world.tokens.acme)
    const query = { orgId: world.orgs.garage.id }
    const { data } = await client.call(api.sites.list, { query })
    const [gate, gone] = ['Gate', 'Gone'].map((name) => data.find((site) => site.name === name)!)
    await client.call(api.sites.update, { params: { id: gate!.id }, body: { settings: { color: 'blue' } } })
    await client.call(api.sites.remove, { params: { id: gone!.id } })
    const whole = await acme(['config', 'export', '--merge', files])
    expect(whole.stdout).toContain(
      text.slice(0, text.indexOf('  - { org')).replace('color: red', 'color: blue'),
    )
    expect(whole.stdout).not.toContain('Gone')
  })

  it('saves a plan, which is refused once the state has moved', async () => {
    const files = file('annex.yaml', 'sites:\n  - { org: garage, name: Annex }\n')
    const out = join(home.path, 'plan.json')
    expect((await acme(['config', 'plan', files, '--set', 'annex', '--out', out])).code).toBe(0)
    expect(statSync(out).mode & 0o777).toBe(0o600)
    expect(JSON.parse(readFileSync(out, 'utf8'))).toMatchObject({ plan: { set: 'annex' } })
    expect((await acme(['config', 'apply', '--plan', out, '--yes'])).code).toBe(0)
    const moved = await acme(['config', 'apply', '--plan', out, '--yes'])
    expect([moved.code, moved.stderr]).toEqual([6, expect.stringContaining('plan again')])
    expect((await acme(['config', 'apply', '--plan', files, '--yes'])).stderr).toContain(
      'is not a saved plan',
    )
    expect((await acme(['config', 'apply', '--yes'])).stderr).toContain('either files or --plan')
  })

  it('prints a comment for a pull request, totals first', async () => {
    const files = file(
      'many.yaml',
      `scripts:\n${Array.from({ length: 900 }, (_, n) => `  - { name: "script ${n} ${'x'.repeat(90)}", osTypes: [linux], language: bash, content: "true" }\n`).join('')}`,
    )
    const { stdout } = await acme(['config', 'plan', files, '--set', 'many', '--markdown'])
    expect(stdout.split('\n')[0]).toBe('### Set `many`: 900 to create')
    expect(stdout.length).toBeLessThan(60_001)
    expect(stdout.trimEnd()).toMatch(/and \d+ more$/)
  })

  it('prints a schema in which every section has its fields', async () => {
    const { stdout, code } = await acme(['config', 'schema'])
    const schema = JSON.parse(stdout) as { properties: Record<string, unknown>; $schema: string }
    expect(code).toBe(0)
    expect(schema.$schema).toContain('2020-12')
    expect(Object.keys(schema.properties)).toEqual([
      'organizations',
      'sites',
      'roles',
      'filters',
      'deviceGroups',
      'scripts',
    ])
    expect(stdout).toContain('Slug of its organization')
  })
})

/** Aliases that would become more and more text. */
function bombOf(levels: number): string {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x]']
  for (let n = 1; n < levels; n += 1)
    lines.push(
      `a${n}: &a${n} [${Array(9)
        .fill(`*a${n - 1}`)
        .join(', ')}]`,
    )
  return `${lines.join('\n')}\n`
}
