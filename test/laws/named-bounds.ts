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
