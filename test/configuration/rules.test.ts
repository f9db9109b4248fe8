import { describe, expect, it } from 'vitest'
import { ConfigurationFile, kinds, type sections } from '../../src/configuration/contract.ts'
import {
  childrenFirst,
  type DesiredObject,
  differing,
  duplicateFaults,
  faultsOf,
  freeDeletions,
  itemsInOrder,
  parentsFirst,
  pruneRefusal,
  readObject,
  type StoredObject,
  sectionsOf,
  shownDifference,
  toFile,
} from '../../src/configuration/rules.ts'
import { invalid, Problem } from '../../src/core/errors.ts'
import { toJsonSchema } from '../../src/core/openapi.ts'

const readDocument = (document: Record<string, Record<string, unknown>[]>) => {
  const { named, faults } = sectionsOf(document, null)
  const read = named.flatMap((section) =>
    document[section]!.map((object, at) => readObject(section, at, object)),
  )
  const items = read.filter((one): one is DesiredObject => !Array.isArray(one))
  return { named, items, faults: [...faults, ...read.filter((one) => Array.isArray(one)).flat()] }
}

const form = { language: 'bash', osTypes: ['linux'], content: 'true\n' }

describe('a document', () => {
  it('names every fault of form at its field', () => {
    const { items, faults, named } = readDocument({
      scripts: [
        { name: 'a', ...form },
        { ...form },
        { name: 'b', ...form, timeoutSeconds: 0, colour: 'red' },
      ],
      sites: [],
      pets: [{}],
    })
    expect(items).toMatchObject([{ section: 'scripts', key: 'a', path: 'body.document.scripts.0' }])
    expect(named).toEqual(['sites', 'scripts'])
    expect(faults.map(({ path, message }) => `${path} ${message}`).sort()).toEqual([
      'body.document.pets is not a section of a file',
      'body.document.scripts.1.name is required',
      'body.document.scripts.2.colour is not a known field',
      'body.document.scripts.2.timeoutSeconds must be at least 1',
    ])
  })

  it('has an object once', () => {
    const { items } = readDocument({ roles: [{ name: 'a' }, { name: 'a', org: 'x' }, { name: 'a' }] })
    expect([...duplicateFaults(items).values()]).toEqual([
      { path: 'body.document.roles.0.name', message: '"a" occurs twice' },
      { path: 'body.document.roles.2.name', message: '"a" occurs twice' },
    ])
  })

  it('leaves fields without a value to what there is, also where creating has a default', () => {
    const { items } = readDocument({ sites: [{ org: 'bakery', name: 'Store' }] })
    expect(items[0]!.values).toEqual({ name: 'Store' })
  })

  it('has what the endpoints accept, and names in place of ids', () => {
    const fields = (section: (typeof sections)[number]) => kinds[section].fields.map(({ name }) => name)
    expect(fields('deviceGroups')).toEqual(['site', 'name', 'type', 'filter', 'parent'])
    expect(fields('roles')).toContain('parent')
    expect(fields('organizations')).not.toContain('ssoConfig')
    expect(JSON.stringify(toJsonSchema(ConfigurationFile, 'input'))).not.toMatch(/orgId|partnerId|siteId/)
  })
})

const order = (pairs: Record<string, string | undefined>) =>
  parentsFirst(
    Object.keys(pairs),
    (name) => name,
    (name) => pairs[name],
  )

describe('the order', () => {
  it('has parents before children, however they stand in the file', () => {
    expect(order({ c: 'b', b: 'a', a: undefined, d: 'elsewhere' })).toEqual({
      ordered: ['a', 'b', 'c', 'd'],
      cycles: [],
    })
  })

  it('finds what is above itself, and ends', () => {
    expect(order({ a: 'b', b: 'a' }).cycles).toHaveLength(1)
    expect(order({ a: 'a' }).cycles).toEqual(['a'])
  })

  it('keeps organizations apart, and deletes children first', () => {
    const { items } = readDocument({
      roles: [
        { name: 'b', parent: 'a', org: 'x' },
        { name: 'a', org: 'x' },
        { name: 'a', parent: 'b', org: 'y' },
        { name: 'b', org: 'y' },
      ],
    })
    const { ordered, cycles } = itemsInOrder(kinds.roles, items)
    expect([ordered.map(({ org, key }) => `${org} ${key}`), cycles]).toEqual([
      ['x a', 'x b', 'y b', 'y a'],
      [],
    ])
    const stored = (id: string, parentRoleId: string | null): StoredObject => ({
      section: 'roles',
      id,
      orgId: null,
      key: id,
      isBuiltIn: false,
      record: { parentRoleId },
    })
    const gone = childrenFirst(kinds.roles, [stored('a', null), stored('b', 'a'), stored('c', 'b')])
    expect(gone.map(({ id }) => id)).toEqual(['c', 'b', 'a'])
  })
})

describe('a difference', () => {
  const { organizations, roles, sites } = kinds

  it('is in the fields that the file has', () => {
    const present = { name: 'Store', timezone: 'UTC', address: null }
    expect(differing(sites, present, { name: 'Store' })).toEqual({})
    expect(differing(sites, present, { name: 'Shop', timezone: 'UTC' })).toEqual({ name: 'Shop' })
  })

  it('ignores the order of keys, and settings that the file leaves out', () => {
    const present = { settings: { a: { b: 1, c: 2 }, d: 3 } }
    expect(differing(organizations, present, { settings: { a: { c: 2, b: 1 } } })).toEqual({})
    expect(differing(organizations, present, { settings: { d: null } })).toEqual({
      settings: { a: { b: 1, c: 2 } },
    })
  })

  it('spells permissions as people do', () => {
    const record = {
      name: 'Night',
      permissions: [
        { resource: 'sites', action: 'read' },
        { resource: 'devices', action: 'read' },
      ],
      parentRoleId: 'r1',
    }
    expect(toFile(roles, record, () => 'Org Viewer')).toEqual({
      name: 'Night',
      permissions: ['devices:read', 'sites:read'],
      parent: 'Org Viewer',
    })
    expect(toFile(roles, record, () => undefined)).not.toHaveProperty('parent')
    const { items } = readDocument({
      roles: [{ name: 'Night', permissions: ['sites:view', 'devices:read'] }],
    })
    expect(items[0]!.values.permissions).toEqual(['devices:read', 'sites:read'])
  })

  it('shows neither secrets nor long texts', () => {
    const shown = shownDifference(
      kinds.organizations,
      { settings: { apiToken: 'old' } },
      { settings: { apiToken: 'hush-hush' } },
    )
    expect(JSON.stringify(shown)).not.toMatch(/hush|old/)
    const [one, other] = ['a', 'b'].map((end) =>
      shownDifference(kinds.scripts, null, { content: 'x'.repeat(5000) + end }),
    )
    expect(JSON.stringify(one).length).toBeLessThan(400)
    expect(one).not.toEqual(other)
  })
})

describe('a deletion', () => {
  it('of a tenth of a kind needs no number', () => {
    expect([0, 1, 9, 10, 29, 100].map(freeDeletions)).toEqual([1, 1, 1, 1, 2, 10])
  })

  it('of more needs the number', () => {
    const refusal = (deletions: number, limit?: number) =>
      pruneRefusal('sites', { deletions, owned: 20, limit })
    expect(refusal(2)).toBeUndefined()
    expect(refusal(3)).toBe('would delete 3 of 20 sites, more than a tenth: --prune-limit 3 allows it')
    expect(refusal(3, 3)).toBeUndefined()
    expect(refusal(2, 1)).toContain('the limit is 1')
  })
})

describe('a fault of an endpoint', () => {
  it('stands at the field of the file', () => {
    const problem = invalid([
      { path: 'body.parentRoleId', message: 'Parent role not found' },
      { path: 'body.permissions.0.action', message: 'wrong' },
      { path: 'body', message: 'whole' },
    ])
    expect(faultsOf(problem, kinds.roles, 'body.document.roles.3')).toEqual([
      { path: 'body.document.roles.3.parent', message: 'Parent role not found' },
      { path: 'body.document.roles.3.permissions.0.action', message: 'wrong' },
      { path: 'body.document.roles.3', message: 'whole' },
    ])
    expect(faultsOf(new Problem('slug_taken'), kinds.organizations, 'x')).toEqual([
      { path: 'x', message: 'That identifier is already in use' },
    ])
  })
})
