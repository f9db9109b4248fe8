import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** A test by its file and its name, or a part of it. */
export type NamedTest = [file: string, name: string]

/** What bounds a table, and the test that reaches the bound. */
export type Bound = { by: string; test: NamedTest }

export const bound = (by: string, ...test: NamedTest): Bound => ({ by, test })

/** Every one of these tests is in its file. */
export function expectTests(named: readonly NamedTest[]): void {
  for (const test of named) {
    const [file, name] = test
    expect([test, readFileSync(`${root}/${file}`, 'utf8').includes(name)]).toEqual([test, true])
  }
}

/** The rows of the table of tables in svc-serve(8), by the names of the tables. */
export function documentedTables(): Map<string, string> {
  const page = readFileSync(`${root}/man/svc-serve.8.md`, 'utf8')
  const [, section = ''] = page.split('\n### Tables\n')
  const rows = section
    .split('\n### ')[0]!
    .split('\n')
    .filter((line) => /^\| [a-z]/.test(line))
  const names = (row: string) => row.split('|')[1]!.trim().split(', ')
  return new Map(rows.flatMap((row) => names(row).map((name): [string, string] => [name, row])))
}

/** Each of these tables is documented, with the settings that bound it. */
export function expectDocumented(bounds: Readonly<Record<string, Bound | string>>): void {
  const documented = documentedTables()
  const lacking = Object.entries(bounds).flatMap(([table, one]) => {
    const row = documented.get(table)
    if (row === undefined) return [table]
    const settings = (typeof one === 'string' ? one : one.by).match(/\b[A-Z]+_(?:[A-Z]+_?)*/g) ?? []
    return settings.filter((name) => !row.includes(name)).map((name) => `${table}: ${name}`)
  })
  expect(lacking).toEqual([])
}
