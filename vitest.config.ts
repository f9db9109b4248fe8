import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

/** Stand-ins for modules would stay for the files that come after. */
const alone = ['test/daemon/enumeration.test.ts']

export default defineConfig({
  test: {
    globalSetup: ['test/build.ts', 'test/postgres.ts'],
    // Processes, not threads: a native module that crashes takes one process with it and no more.
    pool: 'forks',
    // Half of the machine: each has Postgres and processes of its own to keep busy.
    maxWorkers: Math.max(2, Math.floor(availableParallelism() / 2)),
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 10_000,
    projects: [
      // One process after another would load and warm up the same modules for every file.
      {
        extends: true,
        test: { name: 'all', include: ['test/**/*.test.ts'], exclude: alone, isolate: false },
      },
      { extends: true, test: { name: 'alone', include: alone } },
    ],
  },
})
