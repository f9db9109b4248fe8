import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { mutants, mutated, root } from './mutants.ts'

const textOf = (path: string) => readFileSync(join(root, path), 'utf8')

it('every predicate that narrows a query to the scope of its caller is opened in turn', () => {
  const names = [
    ...textOf('src/storage/query/scope.ts').matchAll(
      /^export (?:function|const) (\w+)(?: =)? ?\(scope: Scope/gm,
    ),
  ].map(([, name]) => name)
  expect(names).toEqual(expect.arrayContaining(['inScope', 'inScopeHistory', 'inTenants', 'isScopedGroup']))
  // The service itself and one organization of it are no caller; one group of the caller's is less than they see.
  const call = new RegExp(`\\b(?:${names.join('|')})\\(\\s*(?!systemScope|organizationScope|groupAlone)`, 'g')
  const calls = globSync('src/**/*.ts', { cwd: root, exclude: ['src/storage/**'] }).flatMap((file) =>
    [...textOf(file).matchAll(call)].map(() => file),
  )
  expect(
    mutants()
      .map(({ file }) => file)
      .sort(),
  ).toEqual(calls.sort())
})

it('a mutant asks on behalf of the system, also where it looks for one row', () => {
  expect(mutated("inScope(ofOne(scope), 'org_id')", 0)).toBe("inScope(ofOne({ kind: 'system' }), 'org_id')")
})
