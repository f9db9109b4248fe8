import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { pageQuery, sequenceQuery } from '../../src/core/page.ts'
import { endInstant, idOf, instant, timezone, truncatedText } from '../../src/core/schema.ts'

const id = '01923F7E-ABCD-7000-8000-00000000000F'

it('an id is lower-cased', () => {
  expect(idOf('device').parse(id)).toBe(id.toLowerCase())
})

it('a date alone is the beginning or the end of its day, in UTC', () => {
  expect(instant.parse('2026-01-31')).toBe('2026-01-31T00:00:00.000Z')
  expect(endInstant.parse('2026-01-31')).toBe('2026-01-31T23:59:59.999Z')
  expect(endInstant.parse('2026-01-31T12:00:00+01:00')).toBe('2026-01-31T11:00:00.000Z')
  for (const bad of ['2026-02-31', '2026-13-01', '2026-1-1', '20260131', '']) {
    expect(instant.safeParse(bad).success).toBe(false)
  }
})

it('an offset cannot lead to a year that does not sort as text', () => {
  for (const bad of ['9999-12-31T23:59:59-14:00', '0000-01-01T00:00:00+14:00']) {
    expect(endInstant.safeParse(bad).error?.issues).toHaveLength(1)
  }
  expect(instant.parse('9999-12-31T23:59:59+14:00')).toBe('9999-12-31T09:59:59.000Z')
})

it('every end of a time range in the contract includes its last day', () => {
  const ends = entriesOf(api).flatMap(({ name, entry }) =>
    Object.entries(entry.query?.shape ?? {})
      .filter(([key]) => /^(to|until|before|end(Date|Time))$/.test(key))
      .map(([key, schema]) => [`${name}.${key}`, (schema as typeof instant).parse('2026-01-31')]),
  )
  expect(ends.length).toBeGreaterThan(5)
  for (const [name, at] of ends) expect([name, at]).toEqual([name, '2026-01-31T23:59:59.999Z'])
})

it('a huge page is clamped, and only decimal digits are a number', () => {
  const { page, limit } = pageQuery()
  for (const huge of ['1e18', '1000000000000000000', '1e+21', '9'.repeat(400)]) {
    expect([huge, page.parse(huge), limit.parse(huge)]).toEqual([huge, 1_000_000_000, 100])
  }
  expect([page.parse('-5'), page.parse(undefined), page.parse('07')]).toEqual([1, 1, 7])
  for (const schema of [page, limit, sequenceQuery('of it')]) {
    for (const bad of ['0x10', '1e3', '0b1', '', ' 1', '1.5', 'x', 'Infinity', 'NaN', true, null, []]) {
      expect([bad, schema.safeParse(bad).success]).toEqual([bad, false])
    }
  }
})

it('telemetry text is cut between two characters', () => {
  const schema = truncatedText(20)
  expect(schema.parse('x'.repeat(20))).toBe('x'.repeat(20))
  expect(schema.parse(`${'x'.repeat(12)}${'🙂'.repeat(9)}`)).toBe(`${'x'.repeat(12)}… [cut]`)
})

describe('a time zone', () => {
  it.each([
    ['Europe/Paris', true],
    ['europe/paris', true],
    ['Etc/GMT+5', true],
    ['Europe/Nowhere', false],
    ['+01:00', false],
    // The sign of the kelvin is a k in lower case.
    ['Europe/\u212ayiv', false],
  ])('%s', (name, isZone) => {
    expect(timezone.safeParse('Europe/Kyiv').success).toBe(true)
    // A name that was asked for before is remembered.
    for (const _ of [1, 2]) expect(timezone.safeParse(name).success).toBe(isZone)
  })
})
