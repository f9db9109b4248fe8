import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { readConfiguration } from '../../src/cli/config/files.ts'
import { exportedYaml, mergedYaml } from '../../src/cli/config/yaml.ts'
import { Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

type Sections = Record<string, Record<string, unknown>[]>
type Skipped = { section: string; org: string | null; name: string; reason: string }
const merging = (text: string, document: Sections, skipped: Skipped[] = []) =>
  mergedYaml({ file: 'f.yaml', text, document: document as never, skipped: skipped as never, allowed: [] })
const merge = (text: string, document: Sections) => merging(text, document).text

describe('an export', () => {
  it('is read as what was exported, whatever keys are called', async () => {
    const names = [
      '<<',
      '1',
      '007',
      '0x1F',
      '1e3',
      '.nan',
      'null',
      '~',
      '',
      'true',
      '*a',
      '&a',
      '!a',
      '?',
      '- a',
      '2027-12-31',
    ]
    const settings = Object.fromEntries(names.map((name) => [name, { [name]: [name] }]))
    const document = { sites: [{ name: 'S', settings }] }
    const text = exportedYaml({ document, uncovered: [] } as never)
    expect((await readConfiguration([home.write('all.yaml', text)], {})).document).toEqual(document)
  })
})

describe('a text in an export', () => {
  /** What YAML writes in ways of its own, and what a terminal does not show. */
  const parts = [
    ' ',
    '\n',
    'a',
    '\t',
    '\u001b',
    '"',
    "'",
    '\\',
    ':',
    '#',
    '- ',
    '|',
    '\r',
    '\u0085',
    '\u202e',
  ]

  it('is read as it was exported, whatever it has', { timeout: 120_000 }, async () => {
    const text = fc.array(fc.constantFrom(...parts), { maxLength: 60 }).map((all) => all.join(''))
    const spaces = fc.array(fc.constantFrom(' ', '\n'), { maxLength: 5 }).map((all) => all.join(''))
    const some = fc.array(fc.oneof(text, spaces), { minLength: 50, maxLength: 50 })
    await fc.assert(
      fc.asyncProperty(some, async (texts) => {
        const document = { scripts: texts.map((content, n) => ({ name: `s${n}`, content })) }
        const file = home.write('texts.yaml', exportedYaml({ document, uncovered: [] } as never))
        expect((await readConfiguration([file], {})).document).toEqual(document)
      }),
      { numRuns: 20, seed: 1 },
    )
  })
})

describe('mergedYaml', () => {
  it('keeps a key << apart from a merge key', () => {
    const text = `sites:
  - { name: S, settings: &s { "<<": { a: 1 } } }
  - { name: T, settings: { <<: *s, b: 1 } }
`
    const settings = { '<<': { a: 1 } }
    const document = {
      sites: [
        { name: 'S', settings },
        { name: 'T', settings: { ...settings, b: 1 } },
      ],
    }
    expect(merge(text, document)).toBe(text)
    const fresh = { sites: [...document.sites, { name: 'U', settings }] }
    expect(merge(text, fresh)).toContain('"<<":\n        a: 1\n')
  })

  it.each([
    ['sites', 'address', '{ city: A }', '{ city: A, street: B }'],
    ['sites', 'settings', '{ a: { b: 1 } }', '{ a: { b: 1, c: 2 }, d: { e: 3 } }'],
    ['trustPolicies', 'claims', '{ repo: x }', '{ repo: x, ref: y }'],
    ['ssoProviders', 'attributeMapping', '{ email: x, name: y }', '{ email: x, name: y, groups: g }'],
  ])('takes out keys that are gone: %s %s', (section, field, left, before) => {
    const file = (value: string) => `${section}:\n  - { org: b, name: S, ${field}: ${value} }\n`
    const value = JSON.parse(left.replaceAll(/\w+(?=:)|(?<=: )[a-zA-Z]\w*/g, '"$&"')) as unknown
    expect(merge(file(before), { [section]: [{ org: 'b', name: 'S', [field]: value }] })).toBe(file(left))
  })

  it('keeps variables, merge keys, nulls and comments beside keys that are gone', () => {
    const file = (gone: string) => `sites:
  - name: S
    settings: &s
      kept: 1 # so
${gone}      token: \${env:SVC_CONFIG_TOKEN}
      none: null
      # the list
      list: [ "\${env:SVC_CONFIG_TOKEN}" ]
  - name: T
    settings:
      <<: *s
      own: 1
`
    const inherited = { kept: 1, token: 'hidden', list: ['hidden'] }
    const document = {
      sites: [
        { name: 'S', settings: { kept: 1 } },
        { name: 'T', settings: { ...inherited, own: 1 } },
      ],
    }
    expect(merge(file('      gone: { a: 1 } # once\n'), document)).toBe(file(''))
  })

  it('keeps what is there and left out of the export', () => {
    const text = `sites:
  - { org: bakery, name: Twin, timezone: UTC } # ours
  - { org: garage, name: Twin }
  - { org: bakery, name: Gone }
memberships:
  - { org: bakery, email: Ada@Example.com, role: Night }
trustPolicies:
  - { org: bakery, name: CI }
`
    const skipped = [
      { section: 'sites', org: 'bakery', name: 'Twin', reason: 'several' },
      { section: 'sites', org: 'bakery', name: 'Twin', reason: 'several' },
      { section: 'memberships', org: 'bakery', name: 'ada@example.com', reason: 'its role' },
      { section: 'sites', org: 'bakery', name: 'Other', reason: 'several' },
      { section: 'trustPolicies', org: null, name: '*', reason: 'no' },
      { section: 'apiKeys', org: null, name: '*', reason: 'no' },
    ]
    const sites = [{ org: 'garage', name: 'Twin' }]
    const merged = merging(text, { sites, memberships: [] }, skipped)
    expect(merged.text).toBe(text.replace('  - { org: bakery, name: Gone }\n', ''))
    expect(skipped.map((one) => merged.kept.has(one as never))).toEqual([
      true,
      true,
      true,
      false,
      true,
      false,
    ])
  })

  it('keeps what is left out of the export of the one organization that the file does not name', () => {
    const text = 'sites:\n  - { name: Twin }\n  - { name: Gone }\n'
    const skipped = [{ section: 'sites', org: 'bakery', name: 'Twin', reason: 'several' }]
    expect(merging(text, { sites: [] }, skipped).text).toBe('sites:\n  - { name: Twin }\n')
  })

  it('of one organization is not merged into a file of others, which would lose them', () => {
    const text = 'sites:\n  - { org: bakery, name: Store }\n  - { org: garage, name: Yard }\n'
    expect(() => merge(text, { sites: [{ org: 'bakery', name: 'Store' }] })).toThrow(
      'f.yaml has sites of the organization garage, of which this export says nothing',
    )
    const organizations = [{ slug: 'bakery', name: 'Bakery' }]
    expect(merge(text, { organizations, sites: [{ org: 'bakery', name: 'Store' }] })).toBe(
      'sites:\n  - { org: bakery, name: Store }\n',
    )
  })

  it('keeps what is of organizations that the caller does not see', () => {
    const text = `organizations:
  - { slug: bakery, name: Bakery }
  - { slug: garage, name: Garage }
sites:
  - { org: bakery, name: Gone }
  - { org: garage, name: Yard }
`
    const organizations = [{ slug: 'bakery', name: 'Bakery' }]
    const skipped = [{ section: 'organizations', org: null, name: '*', reason: 'selected' }]
    const merged = merging(text, { organizations, sites: [] }, skipped)
    expect(merged.text).toBe(text.replace('  - { org: bakery, name: Gone }\n', ''))
    expect(merged.kept.has(skipped[0] as never)).toBe(true)
    expect(merge(text, { organizations, sites: [] })).not.toContain('garage')
  })

  it('changes a key that is a number', () => {
    const document = { sites: [{ name: 'S', settings: { 1: 'b' } }] }
    expect(merge('sites:\n  - { name: S, settings: { 1: a } }\n', document)).toContain('settings: { 1: b }')
  })

  it('refuses where an alias would stand for something else', () => {
    const text = `sites:
  - { name: S, settings: { a: &v 1 } }
  - { name: T, settings: { a: &v 2, b: *v } }
`
    const document = {
      sites: [
        { name: 'S', settings: { a: 1 } },
        { name: 'T', settings: { b: 2 } },
      ],
    }
    expect(() => merge(text, document)).toThrow('*v refers to what has changed or is gone')
  })

  it('keeps what stays in a list as it is written, in its order', () => {
    const text = `roles:
  - name: Night
    permissions:
      # tills are restarted at night
      - scripts:execute
      - devices:read # for the list
      - sites:read
`
    const permissions = ['alerts:read', 'devices:read', 'scripts:execute']
    expect(merge(text, { roles: [{ name: 'Night', permissions }] })).toBe(
      text.replace('- sites:read', '- alerts:read'),
    )
  })

  it('changes an item of a list in its place', () => {
    const text = `filters:
  - name: Old
    conditions:
      operator: AND
      conditions:
        # since the outage
        - { field: status, operator: equals, value: offline }
        # of the shops
        - { field: osType, operator: equals, value: linux }
`
    const conditions = [
      { field: 'status', operator: 'equals', value: 'offline' },
      { field: 'osType', operator: 'equals', value: 'windows' },
    ]
    expect(merge(text, { filters: [{ name: 'Old', conditions: { operator: 'AND', conditions } }] })).toBe(
      text.replace('linux', 'windows'),
    )
    const [first, second] = conditions
    const turned = { operator: 'AND', conditions: [{ ...second, value: 'linux' }, first] }
    expect(merge(text, { filters: [{ name: 'Old', conditions: turned }] })).toMatch(
      /# of the shops\n.*linux.*\n +# since the outage\n.*offline/,
    )
  })

  it('takes the comment of a first object that is gone along, and none of the section', () => {
    const annex = '  # rented until May\n  - { org: bakery, name: Annex }\n'
    const text = `sites:
  # all of bakery

  # the head office: never delete
  - { org: bakery, name: Main }
${annex}`
    expect(merge(text, { sites: [{ org: 'bakery', name: 'Annex' }] })).toMatch(
      /^sites:\n +# all of bakery\n\s*# rented until May\n +- \{ org: bakery, name: Annex \}\n$/,
    )
  })

  it('drops a tag that the value does not fit', () => {
    const organizations = [{ slug: 'bakery', settings: { z: 6 } }]
    const text = 'organizations:\n  - { slug: bakery, settings: { z: !!str 5 } }\n'
    expect(merge(text, { organizations })).toBe(text.replace('!!str 5', '6'))
  })

  it('has no organizations of a member who sees all of them', () => {
    const text = `memberships:
  - email: ada@example.com
    role: Partner Viewer
    orgAccess: selected
    orgs: [bakery]
`
    const ada = { email: 'ada@example.com', role: 'Partner Viewer', orgAccess: 'all' }
    expect(merge(text, { memberships: [ada] })).toBe(
      text.replace('selected', 'all').replace('    orgs: [bakery]\n', ''),
    )
  })

  it.each([
    ['an empty list', 'sites:\n  # add sites here\n  []\n', ['B'], ['# add sites here']],
    ['the line of the key', 'sites: # of bakery\n  - { name: A }\n  - { name: B }\n', ['B'], ['# of bakery']],
    ['a head', 'sites:\n  # head\n\n  - { name: A }\n  - { name: B }\n', ['B'], ['# head']],
    ['a list in brackets', 'sites:\n  # which\n  [{ name: A }, { name: B }]\n', ['B'], ['# which']],
    [
      'lines that end in CRLF',
      'sites:\r\n  # head\r\n\r\n  # gone\r\n  - { name: A }\r\n  - { name: B }\r\n',
      ['B'],
      ['# head'],
    ],
  ])('keeps the comment of %s', (_, text, names, comments) => {
    const merged = merge(text, { sites: names.map((name) => ({ name })) })
    for (const comment of comments) expect(merged).toContain(comment)
    expect(merged).not.toContain('# gone')
    expect(merge(merged, { sites: names.map((name) => ({ name })) })).toBe(merged)
  })

  it('keeps both comments of a first item that is not the first any more', () => {
    const text = `organizations:
  - slug: bakery
    settings:
      shifts:
        # of the night
        -
          # from ten
          name: x
        - name: y
`
    const settings = { shifts: [{ name: 'y' }, { name: 'x' }] }
    expect(merge(text, { organizations: [{ slug: 'bakery', settings }] })).toMatch(
      /name: y\n +# of the night\n[^y]*# from ten\n/,
    )
  })

  it.each([
    ['without null', '{ links: [{ name: a, url: null }] }', { links: [{ name: 'b' }] }],
    [
      'without what it had from <<',
      '{ base: &b { u: 1 }, links: [{ <<: *b, v: 2 }] }',
      { base: { u: 1 }, links: [{ v: 3 }] },
    ],
  ])('makes an item of a list what there is, %s', (_, settings, present) => {
    const text = `organizations:\n  - { slug: bakery, settings: ${settings} }\n`
    const merged = merge(text, { organizations: [{ slug: 'bakery', settings: present }] })
    expect(parse(merged, { merge: true })).toEqual({ organizations: [{ slug: 'bakery', settings: present }] })
  })

  it('sees the organizations that another set owns', () => {
    const text = 'sites:\n  - { org: bakery, name: Main, timezone: UTC }\n  - { org: bakery, name: Gone }\n'
    const skipped = [
      { section: 'organizations', org: null, name: '*', reason: 'selected' },
      { section: 'organizations', org: null, name: 'bakery', reason: 'belongs to the set "base"' },
    ]
    const sites = [{ org: 'bakery', name: 'Main', timezone: 'Europe/Paris' }]
    expect(merging(text, { organizations: [], sites }, skipped).text).toBe(
      'sites:\n  - { org: bakery, name: Main, timezone: Europe/Paris }\n',
    )
  })
})
