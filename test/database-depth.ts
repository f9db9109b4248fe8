import { it, type TestFunction, type TestOptions } from 'vitest'
import type { Dialect } from '../src/storage/db.ts'
import { type Open, onEveryDatabase } from './databases.ts'
import { isSoak, takesTurn } from './depth.ts'

/**
 * Describes tests of what is decided above the storage, such as pages in a browser: on SQLite, and in the soak on both
 * databases.
 */
export function aboveStorage(tests: (kind: Dialect, open: Open) => void): void {
  onEveryDatabase(tests, isSoak ? undefined : ['sqlite'])
}

type It = (
  name: string,
  ...test: [TestFunction] | [TestOptions, TestFunction] | [TestFunction, number]
) => void

/**
 * `it` of tests that start processes, or of rules and protocols above the storage: `npm test` runs each on one of the
 * databases, in turn, and the soak on both. A test of a table (`it.each`), or of a condition, runs on both.
 */
export function inTurn(kind: Dialect): It & Pick<typeof it, 'each' | 'runIf' | 'skipIf'> {
  let index = 0
  const own: It = (name, ...test) => {
    const one = it.runIf(takesTurn(kind, index)) as It
    one(name, ...test)
    index += 1
  }
  return Object.assign(own, { each: it.each.bind(it), runIf: it.runIf.bind(it), skipIf: it.skipIf.bind(it) })
}
