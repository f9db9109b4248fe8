import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { failures } from '../../src/sso/failures.ts'

const page = readFileSync(new URL('../../man/svc-sso.7.md', import.meta.url), 'utf8')

it('svc-sso(7) documents the message and the hint of every failure', () => {
  const rows = [...page.matchAll(/^\| (\w+) \| (.*) \| (.*) \|$/gm)].map(([, code, message, hint]) => [
    code,
    { message, hint },
  ])
  expect(Object.fromEntries(rows.filter(([code]) => String(code) in failures))).toEqual(failures)
})
