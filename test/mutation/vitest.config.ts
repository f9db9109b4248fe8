import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { mutated, root } from './mutants.ts'

const { MUTANT_FILE = '', MUTANT_INDEX = '' } = process.env

/** The tests on SQLite, over sources of which one predicate is open. */
export default defineConfig({
  root,
  plugins: [
    {
      name: 'mutant',
      enforce: 'pre',
      transform(code, id) {
        return id.split('?')[0] === join(root, MUTANT_FILE) ? mutated(code, Number(MUTANT_INDEX)) : undefined
      },
    },
  ],
  test: {
    // What is kept of a transformed file does not know which mutant it is.
    fsModuleCache: false,
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/mutation/folder.ts'],
    pool: 'forks',
    maxWorkers: 1,
    bail: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})
