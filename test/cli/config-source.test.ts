import { afterAll, describe, expect, it } from 'vitest'
import { readConfiguration } from '../../src/cli/config/files.ts'
import { mergedYaml } from '../../src/cli/config/yaml.ts'
import { Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

const read = (text: string) => readConfiguration([home.write('file.yaml', text)], {})
const faultOf = async (text: string): Promise<string> =>
  read(text).then(
    () => 'none',
    ({ message }: Error) => message.split('file.yaml:').slice(1).join('').trim(),
  )
const times = (count: number, line: (n: number) => string) =>
  Array.from({ length: count }, (_, n) => line(n)).join('')

describe('the syntax of a file', () => {
  it.each([
    ['sites: []\n---\nroles: []\n', '2:1: a file has one document: write another file for what follows'],
    [`sites: ${'['.repeat(20_000)}${']'.repeat(20_000)}\n`, 'must be nested at most 64 levels deep'],
  ])('has faults that say what to write', async (text, fault) => {
    expect(await faultOf(text)).toContain(fault)
  })
})

describe('aliases of a file', () => {
  it('may be as many as a plan has objects', async () => {
    const sites = times(
      10_000,
      (n) => `  - { name: n${n}, address: *hq }\n  - { name: m${n}, address: { <<: *hq } }\n`,
    )
    const { document } = await read(`sites:\n  - { name: n, address: &hq { city: Paris } }\n${sites}`)
    expect(document.sites).toHaveLength(20_001)
    for (const site of document.sites!) expect(site.address).toEqual({ city: 'Paris' })
  })

  it('may be many in a file that an export is merged into', () => {
    const roles = `roles:\n  - name: R\n    permissions: [&p devices:read${', *p'.repeat(200)}]\n`
    const document = { roles: [{ name: 'R', permissions: ['sites:read'] }] } as never
    const merged = mergedYaml({ file: 'f.yaml', text: roles, document, skipped: [], allowed: [] })
    expect(merged.text).toContain('permissions: [ sites:read ]')
  })

  const nested = (item: (n: number) => string) => `a0: &a0 { x: x, y: y }\n${times(30, (n) => item(n + 1))}`
  it.each([
    ['lists', nested((n) => `a${n}: &a${n} [*a${n - 1}, *a${n - 1}, *a${n - 1}]\n`)],
    ['merge keys', nested((n) => `a${n}: &a${n} { <<: [*a${n - 1}, *a${n - 1}, *a${n - 1}] }\n`)],
    ['a long text', `a: &a ${'x'.repeat(100_000)}\nb: [*a${', *a'.repeat(200)}]\n`],
    [
      'levels',
      nested((n) => `a${n}: &a${n} [*a${n - 1}]\n`) +
        times(60, (n) => `a${n + 31}: &a${n + 31} [*a${n + 30}]\n`),
    ],
  ])('are refused at their place where they multiply what they stand for: %s', async (_, text) => {
    const start = performance.now()
    expect(await faultOf(text)).toMatch(/^\d+:\d+: with .*\*a\d* .*: use fewer$/)
    expect(performance.now() - start).toBeLessThan(2000)
  })
})

describe('what JSON does not have', () => {
  it.each([
    ['{ maxDevices: .nan }', '1:31: JSON has no number .nan: write another, or null for none'],
    ['{ settings: { limit: -.inf } }', '1:38: JSON has no number -.inf: write another, or null for none'],
    ['{ settings: { limit: 1e400 } }', '1:38: JSON has no number 1e400: '],
    [
      '{ settings: { id: 9007199254740993 } }',
      '1:35: 9007199254740993 would lose digits: write at most 9007199254740991, or a text in quotes',
    ],
    ['{ settings: !!set { a, b } }', '1:35: the tag !!set is not read here: write a list'],
    ['{ settings: !!omap [ a: 1 ] }', '1:36: the tag !!omap is not read here: write a map'],
    ['{ name: !!binary aGk= }', `1:34: the tag !!binary is not read here: write a text, or \${file:PATH}`],
    [
      '{ name: !!timestamp 2027-12-31 }',
      '1:37: the tag !!timestamp is not read here: write the time in quotes',
    ],
    ['{ settings: { n: !!float 1 } }', '1:42: the tag !!float is not read here: leave it out'],
    ['{ name: !vault x }', '1:32: the tag !vault is not read here: leave it out'],
    ['{ settings: { 1: a, "1": b } }', '1:37: the key "1" is here twice: leave one out'],
    ['{ settings: { 0x10: a } }', '1:31: this key is read as 16: write it in quotes'],
    ['{ settings: { ~: a } }', '1:31: this key is read as null: write it in quotes'],
    ['{ settings: { ? [ a ] : b } }', '1:33: a key must be a text: write it in quotes'],
    ['{ settings: { __proto__: { a: 1 } } }', '1:31: the service takes no key __proto__ here: use another'],
    [
      '{ settings: { constructor: { prototype: 1 } } }',
      '1:31: the service takes no key constructor here: use another',
    ],
    ['{ <<: x }', '1:19: << takes a map, or a list of maps: write one, or "<<" for a key'],
  ])('is a fault: %s', async (organization, fault) => {
    expect(await faultOf(`organizations: [${organization}]\n`)).toContain(fault)
  })

  it('is a fault in a file of YAML 1.1', async () => {
    const keys = 'enrollmentKeys: [{ expiresAt: 2027-12-31, name: 12:30 }]'
    const said = await faultOf(`%YAML 1.1\n---\n${keys}\n`)
    expect(said).toContain('3:31: 2027-12-31 is read as a time: write it in quotes')
    expect(said).toContain('3:49: 12:30 is read as a time: write it in quotes')
  })

  it('leaves what JSON has', async () => {
    const settings =
      '{ 1: a, true: !!str 5, "<<": b, "__proto": 1e3, x: 0x1F, y: 9007199254740991, z: !!float 1.0 }'
    const { document } = await read(`sites: [{ name: S, settings: ${settings} }]\n`)
    expect(document.sites![0]!.settings).toEqual({
      1: 'a',
      true: '5',
      '<<': 'b',
      __proto: 1000,
      x: 31,
      y: Number.MAX_SAFE_INTEGER,
      z: 1,
    })
  })
})
