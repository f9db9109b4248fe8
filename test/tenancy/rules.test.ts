import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { normalizeOrder } from '../../src/tenancy/partners/rules.ts'
import { difference, mergePatch, mergeSettings } from '../../src/tenancy/rules.ts'

describe('merged settings', () => {
  it.each([
    [{ a: 1, b: 2 }, { b: 3 }, { a: 1, b: 3 }],
    [{ a: { x: 1, y: 2 } }, { a: { y: 3 } }, { a: { x: 1, y: 3 } }],
    [{ a: { x: 1 }, b: 1 }, { a: { x: null } }, { a: {}, b: 1 }],
    [{ a: { x: 1 } }, { a: null }, {}],
    [{ a: [1, 2] }, { a: [3] }, { a: [3] }],
    [{ a: 'text' }, { a: { x: 1, y: null } }, { a: { x: 1 } }],
    [{}, { a: null }, {}],
  ])('%j and %j are %j', (present, said, result) => {
    expect(mergePatch(present, said)).toEqual(result)
  })

  const settings = fc.dictionary(
    fc.string(),
    fc.oneof(fc.integer(), fc.dictionary(fc.string(), fc.integer())),
  ) as fc.Arbitrary<Record<string, unknown>>

  it('contain the patch, keep the rest, and do not change when it is repeated', () => {
    fc.assert(
      fc.property(settings, settings, (present, said) => {
        const once = mergePatch(present, said)
        expect(mergePatch(once, said)).toEqual(once)
        expect(mergePatch(present, {})).toEqual(present)
        for (const key of Object.keys(present)) {
          if (!Object.hasOwn(said, key)) expect(once[key]).toEqual(present[key])
        }
      }),
    )
  })

  it('do not touch prototypes', () => {
    mergePatch({}, JSON.parse('{"__proto__": {"polluted": 1}}'))
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
  })

  it('cannot exceed their maximum size in small steps', () => {
    const step = { b: 'y'.repeat(9000) }
    expect(() => mergeSettings({ a: 'x'.repeat(9000) }, step)).toThrow('16 KiB')
    expect(mergeSettings({ b: 'x'.repeat(9000) }, step)).toEqual(step)
  })
})

describe('the difference in the audit log', () => {
  it('contains what changed and nothing else', () => {
    const before = { name: 'A', settings: { a: { x: 1, y: 2 }, list: [1] }, updatedAt: '1' }
    const after = { name: 'B', settings: { a: { x: 1, y: 3 }, list: [1] }, updatedAt: '2' }
    expect(difference(before, after)).toEqual({
      before: { name: 'A', settings: { a: { y: 2 } } },
      after: { name: 'B', settings: { a: { y: 3 } } },
    })
    expect(difference({ s: { a: 1 } }, { s: { b: 2 } })).toEqual({
      before: { s: { a: 1 } },
      after: { s: { b: 2 } },
    })
    expect(difference(before, { ...before, updatedAt: '2' })).toEqual({ before: {}, after: {} })
  })

  it('names a changed secret without showing it', () => {
    const secret = 'hunter2'
    const said = difference(
      { settings: {}, ssoConfig: null },
      { settings: { smtp: { host: 'h', smtpPassword: secret } }, ssoConfig: { certificate: secret } },
    )
    expect(said).toEqual({
      before: { settings: {}, ssoConfig: null },
      after: { settings: { smtp: { host: 'h', smtpPassword: '********' } }, ssoConfig: '********' },
    })
    const changed = difference({ apiKey: secret }, { apiKey: 'other' })
    expect(changed).toEqual({ before: { apiKey: '********' }, after: { apiKey: '********' } })
    const within = difference({ s: { token: { a: secret } } }, { s: { token: { a: 'other' } } })
    expect(JSON.stringify(within)).not.toContain(secret)
  })
})

describe('the order of organizations', () => {
  it('drops unknown ones and duplicates, and appends the rest in registration order', () => {
    expect(normalizeOrder(['c', 'x', 'A', 'c'], ['a', 'b', 'c', 'd'])).toEqual(['c', 'a', 'b', 'd'])
    expect(normalizeOrder([], ['a', 'b'])).toEqual(['a', 'b'])
    expect(normalizeOrder(['x'], [])).toEqual([])
  })
})
