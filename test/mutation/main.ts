// npm run mutate [-- parts of paths]: opens each tenancy predicate in turn and sees that a test fails.
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Mutant, mutants, root } from './mutants.ts'

const parts = process.argv.slice(2)
const waiting = mutants().filter(
  ({ file }) => parts.length === 0 || parts.some((part) => file.includes(part)),
)
const all = waiting.length
const alive: Mutant[] = []
const folder = mkdtempSync(join(tmpdir(), 'svc-mutate-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
let done = 0

process.stdout.write(`${all} predicates\n`)
await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, work))
process.stdout.write(
  alive.length === 0
    ? `\nWhen any of the ${all} is open, a test fails.\n`
    : `\n${alive.length} of ${all} can be open and no test says so:\n${alive.map(nameOf).join('\n')}\n`,
)
process.exitCode = alive.length === 0 ? 0 : 1

async function work(): Promise<void> {
  for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) {
    const killer = await killerOf(mutant)
    if (killer === undefined) alive.push(mutant)
    process.stdout.write(`${++done}/${all}  ${nameOf(mutant)}  ${killer ?? 'SURVIVES'}\n`)
  }
}

function nameOf({ file, line, predicate }: Mutant): string {
  return `${file}:${line} ${predicate}`
}

/** The first test that fails: of the laws, then of the capability, then of whatever else is near. */
async function killerOf(mutant: Mutant): Promise<string | undefined> {
  const [, capability = ''] = mutant.file.split('/')
  const own = existsSync(join(root, 'test', capability)) ? [`test/${capability}/`] : []
  const stages = [
    ['test/laws/stores.test.ts'],
    ['test/laws/tenancy.test.ts'],
    own,
    ['test/identity/', 'test/credentials/', 'test/daemon/'],
  ]
  for (const files of stages) {
    const failed = files.length === 0 ? undefined : await firstFailure(mutant, files)
    if (failed !== undefined) return failed
  }
  return undefined
}

async function firstFailure({ file, index }: Mutant, files: string[]): Promise<string | undefined> {
  const output = join(folder, `${randomUUID()}.json`)
  const config = ['--config', 'test/mutation/vitest.config.ts', '-t', 'on sqlite']
  const reports = ['--reporter', 'json', '--outputFile', output]
  const child = spawn(join(root, 'node_modules/.bin/vitest'), ['run', ...config, ...reports, ...files], {
    cwd: root,
    env: { ...process.env, MUTANT_FILE: file, MUTANT_INDEX: String(index) },
    stdio: 'ignore',
  })
  await once(child, 'close')
  const report = JSON.parse(readFileSync(output, 'utf8')) as {
    numTotalTests: number
    testResults: { assertionResults: { fullName: string; status: string }[] }[]
  }
  if (report.numTotalTests === 0) throw new Error(`No tests in ${files.join(' ')}`)
  const tests = report.testResults.flatMap((one) => one.assertionResults)
  return tests.find((one) => one.status === 'failed')?.fullName
}
