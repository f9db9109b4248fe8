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
 * `it` of tests that start processes, or of a protocol above the storage: `npm test` runs each on one of the databases, in
 * turn, and the soak on both.
 */
export function inTurn(kind: Dialect): It {
  let index = 0
  return (name, ...test) => {
    const own = it.runIf(takesTurn(kind, index)) as It
    own(name, ...test)
    index += 1
  }
}
