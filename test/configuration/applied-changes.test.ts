import { expect, it } from 'vitest'
import { kinds } from '../../src/configuration/contract.ts'
import { storableValues } from '../../src/configuration/history/applied-changes.ts'

it('a value that was set together with a secret is not put back: nobody could tell that it changed since', () => {
  const before = { url: 'https://hooks.example.com/a', secret: null, headers: [] }
  const after = {
    url: 'https://hooks.example.com/a?token=hidden',
    secret: 'hidden',
    headers: [{ key: 'x', value: 'hidden' }],
  }
  const kept = storableValues(kinds.webhooks, before, after)
  expect(kept.before).toEqual({})
  expect(kept.withheld.sort()).toEqual(['headers', 'secret', 'url'])
  expect(JSON.stringify(kept)).not.toContain('hidden')
})

it('settings are not kept where a list has a secret: a list is put back as a whole', () => {
  const hosts = (name: string) => ({ settings: { hosts: [{ name, token: 'hidden' }] } })
  const kept = storableValues(kinds.organizations, hosts('a'), hosts('b'))
  expect(kept).toEqual({ before: {}, after: {}, withheld: ['settings'] })
})

it('settings are kept without the secrets of their objects', () => {
  const settings = (size: number) => ({ settings: { size, mail: { password: 'hidden' } } })
  expect(storableValues(kinds.organizations, settings(1), settings(2))).toEqual({
    before: { settings: { size: 1, mail: {} } },
    after: { settings: { size: 2, mail: {} } },
    withheld: [],
  })
})
