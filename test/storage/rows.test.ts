import { expect, it } from 'vitest'
import { rowsOf } from '../../src/storage/schema/rows.ts'

type Row = { id: string; org_id: string; is_on: number; settings: string; extra: string | null }
const rows = rowsOf<Row>()({ json: ['settings', 'extra'], flags: ['is_on'] })
const row: Row = { id: '1', org_id: '2', is_on: 1, settings: '{"a":[1]}', extra: null }
const value = { id: '1', orgId: '2', isOn: true, settings: { a: [1] }, extra: null }

it('a row is converted to a value and back', () => {
  expect(rows.read(row)).toEqual(value)
  expect(rows.write(value)).toEqual(row)
})

it('rows with fewer columns, or in another order, are read', () => {
  expect(rows.read({ org_id: '2' })).toEqual({ orgId: '2' })
  expect(rows.read({ is_on: 0, id: '1' })).toEqual({ isOn: false, id: '1' })
  expect(rows.read({ id: '1', is_on: 0 })).toEqual({ id: '1', isOn: false })
  expect(rows.read({})).toEqual({})
  expect(rows.read(row)).toEqual(value)
})

it('values with fewer fields, or in another order, are written', () => {
  expect(rows.write({ orgId: '2' })).toEqual({ org_id: '2' })
  expect(rows.write({ isOn: false, id: '1' })).toEqual({ is_on: 0, id: '1' })
  expect(rows.write({ extra: { b: null }, settings: {} })).toEqual({ extra: '{"b":null}', settings: '{}' })
  expect(rows.write({ extra: null })).toEqual({ extra: null })
  expect(rows.write({})).toEqual({})
})

it('more column sets than the cache holds are still read and written', () => {
  const many = rowsOf<Record<string, number>>()()
  for (let n = 0; n < 100; n++) {
    expect(many.read({ [`column_${n}x`]: n })).toEqual({ [`column${n}x`]: n })
    expect(many.write({ [`fieldX${n}`]: n } as never)).toEqual({ [`field_x${n}`]: n })
  }
})

it('values of one row are not shared with another', () => {
  const empty = { ...row, settings: '{}' }
  const [a, b] = [rows.read(empty), rows.read(empty)]
  a.settings.mine = true
  expect(b.settings).toEqual({})
})
