import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { systemToken } from '../world.ts'
import { liveService } from './live-service.ts'
import { listening } from './network.ts'
import { binary, failureOf, noTerminal, start } from './run.ts'

const live = liveService()
const { home } = live

const acme = (args: string[], env: Record<string, string> = {}, input?: string) =>
  home.run(args, {
    env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme, ...env },
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
    category: \${env:SVC_CONFIG_CATEGORY}
`,
    )
    file('clean.sh', `echo "$\${env:HOME}"\n`)
    const env = { SVC_CONFIG_CATEGORY: 'care' }
    const plan = await acme(['config', 'plan', first, '--set', 'store'], env)
    expect(plan).toMatchObject({
      code: 0,
      stdout: 'sites\n  + bakery / Store\nscripts\n  + Clean\nSet store: 2 to create\n',
    })
    expect((await acme(['config', 'diff', first, '--set', 'store'], env)).code).toBe(1)
    const refused = await acme(['config', 'apply', first, '--set', 'store', '--json'], env)
    expect([refused.code, failureOf(refused).message]).toEqual([2, 'Missing --yes'])
    const applied = await acme(['config', 'apply', first, '--set', 'store', '--revision', 'a1', '--yes'], env)
    expect([applied.code, applied.stderr]).toEqual([0, expect.stringMatching(/Applied as \S+: 2 created/)])
    const same = await acme(['config', 'diff', first, '--set', 'store'], env)
    expect(same).toMatchObject({ code: 0, stdout: 'Set store: no changes\n' })
    const sets = await acme(['config', 'sets', '--columns', 'name,objects,revision', '--csv', '--no-header'])
    expect(sets.stdout).toBe('store,2,a1\n')

    const exported = await acme(['config', 'export'])
    expect(exported.code).toBe(0)
    expect(exported.stdout).toContain('# - new apiKeys: ')
    // What a script contains is no variable of the file.
    expect(exported.stdout).toContain(`$$\${env:HOME}`)
    const all = file('all.yaml', exported.stdout)
    const again = await acme(['config', 'plan', all, '--set', 'store', '--adopt', '--json'])
    const { changes } = JSON.parse(again.stdout) as { changes: { action: string }[] }
    expect(changes.filter(({ action }) => action !== 'adopt')).toEqual([])
  })

  it.skipIf(noTerminal)('asks on a terminal before it applies what it has shown', async () => {
    const asked = file('asked.yaml', 'sites:\n  - { org: bakery, name: Asked, timezone: UTC }\n')
    const env = { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme }
    const apply = (answer: string) =>
      home.terminal(['config', 'apply', asked, '--set', 'asked'], {
        env,
        answers: [['Apply to asked', answer]],
      })
    const plan = () => acme(['config', 'plan', asked, '--set', 'asked'])
    for (const [answer, exit] of [
      ['n\r', 1],
      // Enter alone is no.
      ['\r', 1],
      ['\u0003', 130],
    ] as const) {
      const refused = await apply(answer)
      expect([answer, refused.code]).toEqual([answer, exit])
      expect(refused.stdout.indexOf('bakery / Asked')).toBeLessThan(refused.stdout.indexOf('Apply to asked'))
      expect((await plan()).stdout).toContain('Set asked: 1 to create')
    }
    const applied = await apply('y\r')
    expect([applied.code, applied.stdout]).toEqual([0, expect.stringContaining('1 to create')])
    expect(applied.stdout).toContain(`${live.service.url}\r\n`)
    expect((await plan()).stdout).toBe('Set asked: no changes\n')
  })

  it('asks nobody about what is refused, and says what it takes', async () => {
    const kept = file(
      'kept.yaml',
      'organizations:\n  - { slug: bakery, name: bakery, auditRetention: { retentionDays: 30 } }\n',
    )
    const adopted = file('adopted.yaml', 'organizations:\n  - { slug: bakery, name: bakery }\n')
    const set = ['--set', 'kept', '--partner', live.world.partners.acme]
    const env = { SVC_TOKEN: live.world.tokens.system }
    await acme(['config', 'apply', adopted, ...set, '--adopt', '--yes'], env)
    const withoutFactor = { SVC_TOKEN: await systemToken(live.service, { mfa: false }) }
    const refused = await acme(['config', 'apply', kept, ...set, '--json'], withoutFactor)
    expect([refused.code, failureOf(refused)]).toMatchObject([
      5,
      {
        code: 'forbidden',
        message: 'Nothing is applied, as 1 change is refused: MFA required',
        hint: expect.stringContaining('svc mfa setup'),
      },
    ])
    const out = join(home.path, 'kept.json')
    await acme(['config', 'plan', kept, ...set, '--out', out], withoutFactor)
    const applied = await acme(['config', 'apply', '--plan', out, '--yes'], env)
    expect([applied.code, applied.stderr]).toEqual([0, expect.stringContaining('1 changed')])
  })

  it('applies without a question what only follows a name that was given by hand', async () => {
    const files = (name: string) =>
      file('followed.yaml', `sites:\n  - { org: bakery, name: ${name}, timezone: UTC }\n`)
    const set = ['--set', 'followed']
    await acme(['config', 'apply', files('Kiosk'), ...set, '--yes'])
    const client = live.service.client(live.world.tokens.acme)
    const { data } = await client.call(api.sites.list, { query: { limit: 100 } })
    const { id } = data.find(({ name }) => name === 'Kiosk')!
    await client.call(api.sites.update, { params: { id }, body: { name: 'Booth' } })
    const shown =
      'renamed by hand as the files call it now\n    sites: bakery / Booth, was Kiosk in the files\nSet followed: no changes\n'
    expect(await acme(['config', 'diff', files('Booth'), ...set])).toMatchObject({ code: 0, stdout: shown })
    const { stdout: comment } = await acme(['config', 'plan', files('Booth'), ...set, '--markdown'])
    expect(comment).toContain('sites `bakery / Booth`, was `Kiosk` in the files')
    expect(await acme(['config', 'apply', files('Booth'), ...set])).toMatchObject({
      code: 0,
      stdout: shown,
      stderr: expect.stringContaining('The set knows what was renamed by hand: nothing else changes'),
    })
    await client.call(api.sites.update, { params: { id }, body: { name: 'Stall' } })
    const { stdout } = await acme(['config', 'plan', files('Booth'), ...set])
    expect(stdout).toContain('~ bakery / Booth')
  })

  it('is of the partner that a system administrator names', async () => {
    const env = { SVC_TOKEN: live.world.tokens.system }
    const depot = file('depot.yaml', 'sites: [{ org: garage, name: Depot }]')
    const nameless = await acme(['config', 'plan', depot, '--json'], env)
    expect(failureOf(nameless).hint).toBe('name the tenant: --org ORG or --partner PARTNER')
    const plan = await acme(['config', 'plan', depot, '--partner', 'acme', '--set', 'depots'], env)
    expect(plan).toMatchObject({ code: 0, stdout: expect.stringContaining('+ garage / Depot') })
    const exported = await acme(['config', 'export', '--partner', 'acme'], env)
    expect(exported.stdout).toContain('slug: garage')
  })

  it('tells a difference from every failure when told to watch', async () => {
    const same = file('same.yaml', 'sites: []\n')
    const other = file('other.yaml', 'sites:\n  - { org: garage, name: Watched }\n')
    const diff = (path: string, env: Record<string, string> = {}, ...more: string[]) =>
      acme(['config', 'diff', path, '--set', 'watched', '--watch-exit', ...more], env)
    expect((await diff(same)).code).toBe(0)
    expect(await diff(other)).toMatchObject({ code: 1, stdout: expect.stringContaining('1 to create') })
    expect((await diff('nothing.yaml')).code).toBe(2)
    expect((await diff(same, { SVC_TOKEN: 'x' })).code).toBe(4)
    const broken = createServer((_, reply) => reply.writeHead(500).end('{}'))
    onTestFinished(() => void broken.close())
    const env = { SVC_URL: `http://127.0.0.1:${await listening(broken)}` }
    expect((await acme(['config', 'diff', same, '--set', 'watched'], env)).code).toBe(1)
    expect((await diff(same, env)).code).toBe(9)
    expect((await diff(same, env, '--timeout', '5')).code).toBeGreaterThan(1)
    expect(await acme(['config', 'diff', same, '--set', 'watched'], env)).not.toMatchObject({ code: 0 })
  })

  it('lists what was applied, and rolls it back when told to', async () => {
    const once = file('annex.yaml', 'sites:\n  - { org: garage, name: Annex }\n')
    await acme(['config', 'apply', once, '--set', 'annex', '--revision', 'a1', '--yes'])
    const columns = ['--columns', 'id,set,revision,totals.create', '--csv', '--no-header']
    const { stdout } = await acme(['config', 'history', ...columns])
    const [id, ...rest] = stdout.split('\n')[0]!.split(',')
    expect(rest).toEqual(['annex', 'a1', '1'])
    const listed = await acme(['config', 'history', '--columns', 'totals,set', '--no-header'])
    expect(listed.stdout.split('\n')[0]).toBe('create 1  annex')
    expect(await acme(['config', 'rollback', id!.slice(0, 20)])).toMatchObject({
      code: 0,
      stdout:
        'made by the apply, and kept without --prune\n    sites: garage / Annex\nSet annex: no changes\n',
    })
    const shown = await acme(['config', 'rollback', id!, '--prune', '--dry-run'])
    expect([shown.code, shown.stdout]).toEqual([0, 'sites\n  - garage / Annex\nSet annex: 1 to delete\n'])
    const refused = await acme(['config', 'rollback', id!, '--prune'])
    expect(refused).toMatchObject({
      code: 2,
      stdout: 'sites\n  - garage / Annex\nSet annex: 1 to delete\n',
      stderr: expect.stringContaining('Missing --yes'),
    })
    const done = await acme(['config', 'rollback', id!, '--prune', '--yes', '--json'])
    expect(JSON.parse(done.stdout)).toMatchObject({ totals: { delete: 1 }, applyId: expect.any(String) })
    const again = await acme(['config', 'rollback', id!, '--prune', '--yes'])
    expect(again).toMatchObject({ code: 6, stderr: expect.stringContaining('"Annex" of garage is deleted') })
    expect((await acme(['config', 'rollback', ''])).code).toBe(2)
    expect(await acme(['config', 'rollback', 'nothing'])).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('svc config history lists them'),
    })
  })

  it('says in a difference who set each field, and in a rollback what it cannot bring back', async () => {
    const hook = (secret: string) => `webhooks:
  - { org: garage, name: Blamed, url: "https://hooks.example.com", secret: "\${env:${secret}}", events: [device.enrolled] }
`
    const env = { SVC_CONFIG_ONE: 'hush-one', SVC_CONFIG_TWO: 'hush-two' }
    const set = ['--set', 'blamed']
    const path = file('blamed.yaml', hook('SVC_CONFIG_ONE'))
    await acme(['config', 'apply', path, ...set, '--yes'], env)
    file('blamed.yaml', hook('SVC_CONFIG_TWO'))
    const by = 'by acme-admin@example\\.com at \\S+, audit entry [0-9a-f-]{36}'
    const diff = await acme(['config', 'diff', path, ...set], env)
    expect(diff.stdout).toMatch(new RegExp(`secret: .*\n {8}set ${by}\n`))
    const json = await acme(['config', 'diff', path, ...set, '--json'], env)
    expect(JSON.parse(json.stdout)).toMatchObject({ changes: [{ culprits: [{ field: 'secret' }] }] })
    const applied = await acme(['config', 'apply', path, ...set, '--yes', '--json'], env)
    const { applyId } = JSON.parse(applied.stdout) as { applyId: string }
    const back = await acme(['config', 'rollback', applyId])
    expect(back).toMatchObject({
      code: 0,
      stdout:
        'not brought back\n    webhooks: garage / Blamed keeps what the apply set, as nobody is told what was before: secret\nSet blamed: no changes\n',
    })
    const listed = await acme(['webhooks', 'list', '--org', 'garage', '--json'])
    const { data } = JSON.parse(listed.stdout) as { data: { id: string; name: string }[] }
    const { id } = data.find(({ name }) => name === 'Blamed')!
    await acme(['webhooks', 'delete', id, '--yes', '--org', 'garage'])
    const gone = await acme(['config', 'diff', path, ...set], env)
    expect(gone.stdout).toMatch(new RegExp(`\\+ garage / Blamed\n {6}deleted ${by}\n`))
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
rollouts: []
`,
    )
    writeFileSync(
      join(folder, 'more', 'b.json'),
      `{
  "scripts": [
    { "name": "S", "language": "cobol",
      "osTypes": ["linux"], "content": "\${env:SVC_CONFIG_UNSET}" }
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
    expect(at('a.yaml:9:1')[0]).toContain('is not covered: ')
    expect(at('more/b.json:3:20')).toHaveLength(1)
    expect(at('more/b.json:4:29')[0]).toContain('the variable SVC_CONFIG_UNSET is not set')
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
    const applied = await acme(['config', 'apply', files, '--set', 'gate', '--env', 'ZONE', '--yes'], env)
    expect([applied.code, applied.stderr]).toEqual([0, expect.stringContaining('Applied')])
    const client = live.service.client(live.world.tokens.acme)
    const query = { orgId: live.world.orgs.garage.id }
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

  it('merges nothing into a file that says the same in other words', async () => {
    const text = `# Ours
roles:
  - org: garage
    name: Evening shift
    permissions: [ sites:read, devices:read, alerts:read ]
memberships:
  - { org: garage, email: Evening@Garage.Example, name: Eve, role: Evening shift }
webhooks:
  - { org: garage, name: Evening, url: "https://hooks.example.com/evening", secret: "\${env:HOOK}", events: [ patch.failed, alert.triggered ] }
deviceGroups:
  - { org: garage, name: Evening, type: dynamic, filter: Evening }
filters:
  - { org: garage, name: Evening, conditions: { operator: AND, conditions: [ { field: status, operator: equals, value: online } ] } }
`
    const files = file('evening.yaml', text)
    const env = { HOOK: 'a secret of the evening' }
    const applied = await acme(['config', 'apply', files, '--set', 'evening', '--env', 'HOOK', '--yes'], env)
    expect([applied.code, applied.stderr]).toEqual([0, expect.stringContaining('Applied')])
    const merged = await acme(['config', 'export', '--merge', files, '--env', 'HOOK'], env)
    const own = text.split('\n').filter((line) => /Evening|permissions/.test(line))
    expect(merged.stdout.split('\n').filter((line) => own.includes(line))).toEqual(own)
  })

  it('keeps in a merged file what an export leaves out, and says so', async () => {
    const files = file(
      'twins.yaml',
      'sites:\n  - { org: garage, name: Twin, timezone: UTC } # ours\n  - { org: garage, name: Single }\n',
    )
    await acme(['config', 'apply', files, '--set', 'twins', '--yes'])
    const client = live.service.client(live.world.tokens.acme)
    const orgId = live.world.orgs.garage.id
    const made = await client.call(api.sites.create, { body: { orgId, name: 'Twin' } })
    onTestFinished(async () => void (await client.call(api.sites.remove, { params: { id: made.id } })))
    const merged = await acme(['config', 'export', '--merge', files])
    expect(merged.stdout).toContain('  - { org: garage, name: Twin, timezone: UTC } # ours\n')
    const why = 'there are several of this name: rename all but one'
    expect(merged.stderr).toContain(`sites "Twin" of garage: ${why}; kept as it stands in ${files}\n`)
    const none = await acme(['config', 'export', '--merge', file('none.yaml', 'sites: []\n')])
    expect(none.stderr).toContain(`sites "Twin" of garage: ${why}; not in ${join(home.path, 'none.yaml')}\n`)
    const plain = await acme(['config', 'export'])
    expect(plain.stderr).toContain(`sites "Twin" of garage: ${why}\n`)
  })

  it('reads only variables and files that are meant for it', async () => {
    const folder = join(home.path, 'confined')
    mkdirSync(join(folder, 'below'), { recursive: true })
    file('outside.sh', 'OUTSIDE')
    writeFileSync(join(folder, 'below', 'inside.sh'), 'true')
    writeFileSync(join(folder, 'long.sh'), 'x'.repeat(1024 * 1024 + 1))
    symlinkSync('../outside.sh', join(folder, 'link.sh'))
    symlinkSync('..', join(folder, 'up'))
    symlinkSync('/dev/zero', join(folder, 'zero'))
    execFileSync('mkfifo', [join(folder, 'pipe')])
    const texts = [
      'env:SVC_TOKEN',
      'env:OTHER',
      'file:../outside.sh',
      `file:${home.path}/outside.sh`,
      `file:${folder}/below/inside.sh`,
      'file:link.sh',
      'file:up/outside.sh',
      'file:/dev/zero',
      'file:zero',
      'file:pipe',
      'file:below',
      'file:long.sh',
      'file:none.sh',
    ]
    const script = (text: string, at: number) =>
      `  - { name: S${at}, osTypes: [linux], language: bash, content: "\${${text}}" }\n`
    const main = join(folder, 'main.yaml')
    writeFileSync(main, `scripts:\n${texts.map(script).join('')}`)
    const failed = await acme(['config', 'plan', main], { OTHER: 'SECRET' })
    expect([failed.code, failed.stdout]).toEqual([2, ''])
    const lines = failed.stderr.split('\n').map((line) => line.trim())
    const column = (n: number) => script('', n).indexOf('content') + 1
    const at = texts.map((_, n) => lines.filter((line) => line.startsWith(`${main}:${n + 2}:${column(n)}: `)))
    expect(at.map((found) => found.length)).toEqual(texts.map(() => 1))
    const said = at.map(([line = '']) => line.slice(line.indexOf(': ') + 2))
    expect(said[1]).toBe(
      'the variable OTHER is closed to files: call it SVC_CONFIG_OTHER, or allow it with --env OTHER',
    )
    for (const line of said.slice(2, 7)) expect(line).toContain('put it beside this file or below')
    for (const line of said.slice(10, 12)) expect(line).toContain('a regular file of at most 1048576 bytes')
    expect(said[9]).toContain('a regular file')
    expect(said[12]).toBe('there is no file none.sh beside this one')
    expect(failed.stderr).not.toMatch(/OUTSIDE|SECRET/)

    writeFileSync(main, `scripts:\n${script('env:OTHER', 0)}${script('file:below/inside.sh', 1)}`)
    const allowed = await acme(['config', 'plan', main, '--env', 'OTHER'], { OTHER: 'x' })
    expect([allowed.code, allowed.stdout]).toEqual([0, expect.stringContaining('2 to create')])
    const value = await acme(['config', 'plan', main, '--env', 'OTHER=x'])
    expect([value.code, value.stderr]).toEqual([2, expect.stringContaining('without its value')])

    // A small file names a large one again and again.
    writeFileSync(join(folder, 'large.sh'), 'x'.repeat(1024 * 1024))
    writeFileSync(
      main,
      `scripts:\n${Array.from({ length: 9 }, (_, n) => script('file:large.sh', n)).join('')}`,
    )
    expect((await acme(['config', 'plan', main])).stderr).toContain('are more than 8388608 bytes together')

    symlinkSync('../outside.sh', join(folder, 'link.yaml'))
    expect((await acme(['config', 'plan', folder])).stderr).toContain('is a link out of')
  })

  it('sends nothing of a script that is not UTF-8', async () => {
    writeFileSync(join(home.path, 'latin.sh'), Buffer.from('echo café\n', 'latin1'))
    const path = file(
      'latin.yaml',
      `scripts:\n  - { name: L, osTypes: [linux], language: bash, content: "\${file:latin.sh}" }\n  - { name: M }\n`,
    )
    const failed = await acme(['config', 'plan', path])
    expect(failed.code).toBe(2)
    expect(failed.stderr).toContain(`${path}:2:50: latin.sh is not UTF-8 (line 1, column 9)`)
    expect(failed.stderr).toContain(`${path}:3:5: `)
    const input = { env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme } }
    const single = await home.run(
      ['scripts', 'create', '--name', 'L', '--language', 'bash', '--os', 'linux', '--file', 'latin.sh'],
      input,
    )
    expect([single.code, single.stderr]).toEqual([
      2,
      expect.stringContaining('line 1, column 9 is not UTF-8'),
    ])
  })

  it('prints no address from a variable, however it is spelled', async () => {
    const env = { SVC_CONFIG_ADDRESS: 'Boss.Secret@Example.com', SVC_CONFIG_PERSON: 'Ghost.Writer' }
    const people = (role: string) => `memberships:
  - { org: garage, email: "\${env:SVC_CONFIG_ADDRESS}", name: Boss, role: ${role} }
  - { org: garage, email: "\${env:SVC_CONFIG_PERSON}@Example.com", name: Ghost, role: ${role} }
`
    const set = ['--set', 'people']
    const path = file('people.yaml', people('Org Viewer'))
    const runs = [
      await acme(['config', 'plan', path, ...set], env),
      await acme(['config', 'apply', path, ...set, '--yes', '--json'], env),
    ]
    file('people.yaml', people('Org Technician'))
    runs.push(await acme(['config', 'diff', path, ...set], env))
    file('people.yaml', people('Nobody'))
    runs.push(await acme(['config', 'plan', path, ...set], env))
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 1, 2])
    for (const { stdout, stderr } of runs) {
      expect(stdout + stderr).toContain('SVC_CONFIG_ADDRESS')
      expect(stdout + stderr).not.toMatch(/boss\.secret|ghost\.writer/i)
    }
    // A merged file keeps the variables, whatever the service calls the people.
    file('people.yaml', people('Org Viewer'))
    const merged = await acme(['config', 'export', '--merge', path], env)
    expect([merged.code, merged.stderr]).toEqual([0, expect.not.stringContaining('secret')])
    expect(merged.stdout.match(/SVC_CONFIG_ADDRESS/g)).toHaveLength(1)
    expect(merged.stdout).not.toMatch(/boss\.secret|ghost\.writer/i)
  })

  it('tells a difference from output that nobody reads when told to watch', async () => {
    const other = file('unread.yaml', 'sites:\n  - { org: garage, name: Unread }\n')
    const line = `'${process.execPath}' '${binary}' config diff ${other} --set unread`
    const env = { ...home.env, SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme }
    const bash = (script: string) => start('bash', ['-c', script], env, home.path)
    for (const out of process.platform === 'linux' ? ['> /dev/full', '| true'] : ['| true']) {
      const { code } = await bash(`set -o pipefail; sleep 0.1; ${line} --watch-exit ${out}`)
      expect([out, code]).toEqual([out, 9])
    }
    expect((await bash(`${line} --watch-exit`)).code).toBe(1)
  })

  it('never prints what came from a variable', async () => {
    const env = {
      SVC_CONFIG_NAME: 'Secret Name',
      SVC_CONFIG_ORG: 'garage',
      SVC_CONFIG_CODE: 'hunter-two',
      SVC_CONFIG_ZONE: 'UTC',
    }
    const hidden = /Secret Name|hunter|garage|Printed/
    file('printed.sh', 'echo Printed')
    const textOf = (code: string, zone: string) => `sites:
  - name: \${env:SVC_CONFIG_NAME}
    org: \${env:SVC_CONFIG_ORG}
    timezone: ${zone}
    settings: { color: "${code}", plain: { list: [a, "${code}"], deep: "x ${code} y" } }
scripts:
  - name: Hidden
    osTypes: [linux]
    language: bash
    category: ${code}
    content: ${code === 'none' ? '"true"' : `\${file:printed.sh}`}
`
    const first = file('hidden.yaml', textOf('none', 'UTC'))
    const set = ['--set', 'hidden']
    const made = await acme(['config', 'apply', first, ...set, '--yes'], env)
    expect([made.code, made.stdout]).toEqual([
      0,
      `sites\n  + (from \${env:SVC_CONFIG_ORG}) / (from \${env:SVC_CONFIG_NAME})\nscripts\n  + Hidden\nSet hidden: 2 to create\n`,
    ])
    const code = `\${env:SVC_CONFIG_CODE}`
    file('hidden.yaml', textOf(code, 'Europe/Paris'))
    const plain = await acme(['config', 'plan', first, ...set], env)
    expect([plain.code, plain.stderr]).toEqual([0, ''])
    expect(plain.stdout).toContain(`category: (from \${env:SVC_CONFIG_CODE})\n`)
    expect(plain.stdout).toContain(`content: (from \${file:printed.sh})\n`)
    expect(plain.stdout).toContain('timezone: "UTC" → "Europe/Paris"\n')
    const out = join(home.path, 'hidden.json')
    const saved = await acme(['config', 'plan', first, ...set, '--json', '--out', out], env)
    const { changes } = JSON.parse(saved.stdout) as { changes: { section: string; after: object }[] }
    const from = `(from \${env:SVC_CONFIG_CODE})`
    expect(changes.find(({ section }) => section === 'sites')!.after).toEqual({
      timezone: 'Europe/Paris',
      settings: { color: from, plain: { list: from, deep: from } },
    })
    const runs = [
      plain,
      saved,
      await acme(['config', 'diff', first, ...set], env),
      await acme(['config', 'diff', first, ...set, '-o', 'yaml'], env),
      await acme(['config', 'plan', first, ...set, '--markdown'], env),
      await acme(['config', 'apply', '--plan', out, '--yes', '--json'], env),
    ]
    for (const { stdout, stderr } of runs) {
      expect(stdout).toContain('SVC_CONFIG_NAME')
      expect(stdout + stderr).not.toMatch(hidden)
    }

    // What leaves the files with --prune, or is called otherwise, still says it.
    const renamed = file(
      'renamed.yaml',
      `sites:
  - { org: garage, name: Renamed, renamedFrom: "\${env:SVC_CONFIG_NAME}" }
scripts: []
filters:
  - { org: garage, name: "\${env:SVC_CONFIG_CODE}", conditions: { operator: AND, conditions: [{ field: lastSeenAt, operator: notWithinLast, value: { amount: 7, unit: days } }] } }
`,
    )
    const pruned = await acme(['config', 'plan', renamed, ...set, '--prune', '--json'], env)
    expect([pruned.code, pruned.stderr, pruned.stdout]).toEqual([0, '', expect.stringContaining('"delete"')])
    expect(pruned.stdout).not.toMatch(/Secret Name|hunter/)

    // A fault of the service quotes what it was sent.
    const faulty = file(
      'quoted.yaml',
      `sites:
  - { org: "\${env:SVC_CONFIG_CODE}", name: "\${env:SVC_CONFIG_NAME}" }
roles:
  - { name: Odd, parent: "\${env:SVC_CONFIG_NAME}", permissions: ["\${env:SVC_CONFIG_CODE}"] }
  - { name: "\${env:SVC_CONFIG_NAME}", parent: "\${env:SVC_CONFIG_CODE}" }
`,
    )
    const refused = await acme(['config', 'plan', faulty], env)
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(`\${env:SVC_CONFIG_CODE}`)])
    expect(refused.stderr).not.toMatch(hidden)
  })

  it('takes secrets from variables alone, and says only that they change', async () => {
    const hooks = (more: string) => `webhooks:
  - org: bakery
    name: Tickets
    url: \${env:SVC_CONFIG_URL}
    events: [device.enrolled]
${more}
`
    const clear = file(
      'clear.yaml',
      `${hooks('    secret: hush-hush\n    headers: [{ key: Authorization, value: Bearer loud }]')}ssoProviders:
  - { org: bakery, name: Okta, type: oidc, clientSecret: hush-hush }
`,
    )
    const env = { SVC_CONFIG_URL: 'https://93.184.215.14/in?key=k-e-y', SVC_CONFIG_SECRET: 's-e-c-r-e-t' }
    const refused = await acme(['config', 'plan', clear], env)
    expect(refused.code).toBe(2)
    const lines = refused.stderr.split('\n').map((line) => line.trim())
    const fault = `holds a secret in clear: write \${env:NAME} or \${file:PATH} in its place`
    for (const place of ['6:5', '7:5', '9:44'])
      expect(lines).toContainEqual(expect.stringContaining(`${clear}:${place}: ${fault}`))
    const good = file('hooks.yaml', hooks(`    secret: \${env:SVC_CONFIG_SECRET}`))
    const applied = await acme(['config', 'apply', good, '--set', 'hooks', '--yes'], env)
    expect(applied.code).toBe(0)
    expect((await acme(['config', 'plan', good, '--set', 'hooks'], env)).stdout).toBe(
      'Set hooks: no changes\n',
    )
    const other = await acme(['config', 'plan', good, '--set', 'hooks'], { ...env, SVC_CONFIG_SECRET: 'new' })
    expect(other.stdout).toBe(
      `webhooks\n  ~ bakery / Tickets\n      secret: (from \${env:SVC_CONFIG_SECRET})\nSet hooks: 1 to change\n`,
    )
    const exported = await acme(['config', 'export'])
    expect(exported.stdout).toContain('name: Tickets')
    for (const { stdout, stderr } of [refused, applied, other, exported])
      for (const hidden of ['hush-hush', 'k-e-y', 's-e-c-r-e-t', 'loud'])
        expect(stdout + stderr).not.toContain(hidden)
  })

  it('exports no record that would become a variable, in any format', async () => {
    const token = `\${env:SVC_TOKEN}`
    const named = file('named.yaml', `sites:\n  - { org: garage, name: "$${token}" }\n`)
    expect((await acme(['config', 'apply', named, '--set', 'named', '--yes'])).code).toBe(0)
    for (const format of [
      ['--json'],
      ['--jq', '.document'],
      ['-o', 'json'],
      ['-o', 'yaml'],
      ['-o', 'ndjson'],
    ]) {
      const { stdout } = await acme(['config', 'export', ...format])
      expect(stdout).toContain(`$${token}`)
      expect(stdout.replaceAll(`$${token}`, '')).not.toContain(token)
    }
  })

  it('merges no value of a variable into a file', async () => {
    const text = `sites:
  # The first
  - &one
    org: \${env:SVC_CONFIG_ORG}
    name: \${env:SVC_CONFIG_NAME}
    settings:
      list: [ plain, "\${env:SVC_CONFIG_CODE}" ] # kept
      deep: { code: "\${env:SVC_CONFIG_CODE}", color: red }
  # The second
  - { <<: *one, name: Merged, timezone: UTC }
`
    const env = { SVC_CONFIG_ORG: 'garage', SVC_CONFIG_NAME: 'Mergeable', SVC_CONFIG_CODE: 'pepper-two' }
    const files = file('merge.yaml', text)
    expect((await acme(['config', 'apply', files, '--set', 'merge', '--yes'], env)).code).toBe(0)
    const client = live.service.client(live.world.tokens.acme)
    const { data } = await client.call(api.sites.list, { query: { orgId: live.world.orgs.garage.id } })
    const settings = { list: ['plain', 'other-secret'], deep: { code: 'pepper-three', color: 'blue' } }
    const id = data.find(({ name }) => name === 'Mergeable')!.id
    await client.call(api.sites.update, { params: { id }, body: { settings } })
    const merged = await acme(['config', 'export', '--merge', files], env)
    expect(merged.stdout).toContain(
      text.slice(text.indexOf('sites:\n') + 7).replace('color: red', 'color: blue'),
    )
    expect(merged.stdout).not.toMatch(/pepper|other-secret|Mergeable/)
    expect(merged.stdout.match(/Merged/g)).toHaveLength(1)

    for (const [changed, why] of [
      [{ SVC_CONFIG_NAME: 'Elsewhere' }, 'the service has no such object'],
      [{ SVC_CONFIG_NAME: undefined }, 'the variable SVC_CONFIG_NAME is not set'],
    ] as const) {
      const refused = await home.run(['config', 'export', '--merge', files], {
        env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme, ...env, ...changed },
      })
      expect([refused.code, refused.stdout]).toEqual([2, ''])
      expect(refused.stderr).toContain(`${files}:5:5: `)
      expect(refused.stderr).toContain(why)
    }
  })

  it('refuses to merge where an alias would lose what it refers to', async () => {
    const files = file(
      'lost.yaml',
      'sites:\n  - &a { org: garage, name: Lost }\n  - { <<: *a, name: Merged }\n',
    )
    const refused = await acme(['config', 'export', '--merge', files])
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('*a refers to what has')])
  })

  it('says where an alias refers to what it is a part of', async () => {
    for (const item of [
      '  - &o { org: garage, name: X, settings: { a: *o } }',
      '  - &o { <<: *o, name: X }',
      '  - &o { name: X, settings: { <<: [*o] } }',
      '  - &o [ &p { name: X, settings: { a: *o } } ]',
      '  - *none',
    ]) {
      const text = `sites:\n${item}\n`
      const place = `2:${item.indexOf('*') + 1}`
      const files = file('circle.yaml', text)
      for (const args of [
        ['plan', files],
        ['export', '--merge', files],
      ]) {
        const failed = await acme(['config', ...args])
        expect([failed.code, failed.stderr]).toEqual([2, expect.stringContaining(`${files}:${place}: `)])
      }
    }
  })

  it('saves a plan, which is refused once the state has moved', async () => {
    const files = file('annex.yaml', 'sites:\n  - { org: garage, name: Annex }\n')
    const out = join(home.path, 'plan.json')
    expect(await acme(['config', 'plan', files, '--set', 'annex', '--out', out])).toMatchObject({
      code: 0,
      stderr: `The plan is in ${out}: svc config apply --plan ${out} applies it\n`,
    })
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

  it('takes beside a saved plan none of the flags that it has itself', async () => {
    const files = file('own.yaml', 'sites:\n  - { org: garage, name: Own }\n')
    const out = join(home.path, 'own.json')
    await acme(['config', 'plan', files, '--set', 'own', '--out', out])
    for (const flags of [
      ['--org', 'bakery'],
      ['--partner', 'acme'],
      ['--set', 'default'],
      ['--prune'],
      ['--prune', '--prune-limit', '2'],
      ['--adopt'],
      ['--env', 'ZONE'],
    ]) {
      const refused = await acme(['config', 'apply', '--plan', out, '--yes', '--json', ...flags])
      const names = flags.filter((word) => word.startsWith('--')).join(', ')
      expect([refused.code, refused.stdout, failureOf(refused).message]).toEqual([
        2,
        '',
        `A saved plan is applied as it was planned: --plan takes no ${names}`,
      ])
    }
    const env = { SVC_ORG: 'bakery' }
    const applied = await acme(['config', 'apply', '--plan', out, '--yes', '--json', '--revision', 'c3'], env)
    expect([applied.code, JSON.parse(applied.stdout)]).toMatchObject([
      0,
      { set: 'own', totals: { create: 1 } },
    ])
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
      'partners',
      'organizations',
      'sites',
      'roles',
      'filters',
      'deviceGroups',
      'scripts',
      'memberships',
      'webhooks',
      'trustPolicies',
      'ssoProviders',
      'apiKeys',
      'enrollmentKeys',
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
