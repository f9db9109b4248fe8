import { globSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { isSoak } from './test/depth.ts'

// Services start threads from the sources, thousands of them, and Node would strip their types and compile them each time.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('node_modules/.cache/node', import.meta.url))

/** These have stand-ins for modules of their own, or none: others would stay for the files that come after. */
const alone = [
  'test/cli/logs-tail-all.test.ts',
  'test/daemon/enumeration.test.ts',
  'test/identity/hashing.test.ts',
]

/** The soak repeats the suites that have a short run and a full one: they import test/depth.ts, or a helper that does, take turns, or run commands. */
const files = globSync('test/**/*.test.ts').filter(
  (file) =>
    !isSoak ||
    /(depth|writers|killing|random)\.ts'|\b(inTurn|aboveStorage|Home|liveService)\b/.test(
      readFileSync(file, 'utf8'),
    ),
)

export default defineConfig({
  test: {
    globalSetup: ['test/build.ts', 'test/postgres.ts'],
    // Processes, not threads: a native module that crashes takes one process with it and no more.
    pool: 'forks',
    runner: 'test/turns.ts',
    // Half of the machine: each has Postgres and processes of its own to keep busy. With three, two processors never rest.
    maxWorkers: Math.max(3, Math.floor(availableParallelism() / 2)),
    // For what hangs: a test that starts several processes takes long on a busy machine.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    teardownTimeout: 10_000,
    projects: [
      // One process after another would load and warm up the same modules for every file.
      {
        extends: true,
        test: {
          name: 'all',
          include: files,
          exclude: alone,
          isolate: false,
          setupFiles: ['test/cheap-passwords.ts', 'test/environment.ts', 'test/random.ts'],
        },
      },
      { extends: true, test: { name: 'alone', include: alone } },
    ],
  },
})
