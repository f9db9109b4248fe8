import { type RunnerTask, type RunnerTestCase, type RunnerTestSuite, TestRunner } from 'vitest'
import { isSoak } from './depth.ts'

declare module 'vitest' {
  interface TaskMeta {
    /** Suites that are the same on another database have the same number. */
    turns?: number
  }
}

/**
 * Runs the tests of `inTurn` suites: each on one of the databases and the next test on the other, and all on both in the
 * soak.
 */
export default class extends TestRunner {
  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    // A suite within one that takes turns has its number too.
    if (!isSoak && suite.meta.turns === undefined) takeTurns(suite.tasks)
    await super.onBeforeRunSuite(suite)
  }
}

function takeTurns(tasks: readonly RunnerTask[]): void {
  const suites = tasks.filter((task) => task.type === 'suite' && task.meta.turns !== undefined)
  const pairs = Map.groupBy(suites as RunnerTestSuite[], ({ meta }) => meta.turns)
  for (const [one, other] of pairs.values()) {
    if (!one || !other) continue
    const others = runningTests(other)
    const both = [...runningTests(one)].filter(([name]) => others.has(name))
    for (const [index, [name, test]] of both.entries()) {
      const skipped = index % 2 === 0 ? others.get(name)! : test
      skipped.mode = 'skip'
    }
    skipEmpty(one)
    skipEmpty(other)
  }
}

/** By what they are called below the suite; a name that comes again has a number. */
function runningTests(suite: RunnerTestSuite): Map<string, RunnerTestCase> {
  const found = new Map<string, RunnerTestCase>()
  const add = (tasks: readonly RunnerTask[], prefix: string) => {
    for (const task of tasks) {
      const name = `${prefix} > ${task.name}`
      if (task.type === 'suite') add(task.tasks, name)
      else if (runs(task)) found.set(numbered(found, name), task)
    }
  }
  add(suite.tasks, '')
  return found
}

const runs = ({ mode }: RunnerTestCase): boolean => mode === 'run' || mode === 'queued'

function numbered(taken: ReadonlyMap<string, unknown>, name: string): string {
  let number = 1
  while (taken.has(`${name} ${number}`)) number += 1
  return `${name} ${number}`
}

/** What a suite prepares for tests that are all skipped is not prepared. */
function skipEmpty(suite: RunnerTestSuite): void {
  for (const task of suite.tasks) if (task.type === 'suite') skipEmpty(task)
  // One without tests is at fault, and has to say so.
  if (suite.tasks.length > 0 && suite.tasks.every(({ mode }) => mode === 'skip' || mode === 'todo'))
    suite.mode = 'skip'
}
