import { expect, it } from 'vitest'
import { productSources, withoutComments } from './imports.ts'

/** The scope of a query that names its row: `ofOne`, or the database goes through all organizations of a partner for it. */
const named = String.raw`\.where\('(?:\w+\.)?id', '=',`
const selected = String.raw`(?:\s*\.(?:select|selectAll|innerJoin|leftJoin)\((?:[^()]|\([^()]*\))*\))*\s*`
const lists = [
  new RegExp(String.raw`\b\w+(?:In|Orgs|Roles)\(\w+, scope\)\)?${selected}${named}`),
  new RegExp(String.raw`${named} [\w.]+\)\s*\.where\(inScope\(scope,`),
  new RegExp(String.raw`\.where\(inScope\(scope, '[\w.]+'\)\)\s*${named}`),
]

const listsFirst = (text: string) => lists.some((one) => one.test(withoutComments(text)))

it.each([
  [`sitesIn(db, scope).selectAll().where('id', '=', id)`, true],
  [`withCounts(webhooksIn(db, scope)).where('webhooks.id', '=', id)`, true],
  [`.where('id', '=', id).where(inScope(scope, 'org_id'))`, true],
  [`sitesIn(db, ofOne(scope)).selectAll().where('id', '=', id)`, false],
  [`sitesIn(db, scope).selectAll().where('org_id', '=', orgId)`, false],
])('%s', (text, isFound) => {
  expect(listsFirst(text)).toBe(isFound)
})

it('a row that is named by its id is looked up by it, and not among all of the scope', () => {
  const slow = productSources().filter(({ text }) => listsFirst(text))
  expect(slow.map(({ path }) => path)).toEqual([])
})
