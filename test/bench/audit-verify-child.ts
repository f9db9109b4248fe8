// Goes over a chain file once in threads, in a process of its own, and says how many seconds that took.
// Runs as a process: node audit-verify-child.ts verify|hash <file> <threads>
import { once } from 'node:events'
import { fstatSync, openSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { verifyRanges } from '../../src/audit/verifier/ranges.ts'
import type { HashTask } from './audit-hash-thread.ts'

const [what = '', file = '', count = '2'] = process.argv.slice(2)
const threads = Number(count)
const descriptor = openSync(file, 'r')
const { size } = fstatSync(descriptor)
const begin = performance.now()
if (what === 'verify') {
  const verdict = await verifyRanges(descriptor, { size, threads })
  if (verdict.verdict !== 'sound') throw new Error(verdict.fault.message)
} else {
  const workers = Array.from({ length: threads }, (_, at) => {
    const task: HashTask = {
      descriptor,
      from: Math.floor((size * at) / threads),
      to: Math.floor((size * (at + 1)) / threads),
    }
    return once(new Worker(new URL('./audit-hash-thread.ts', import.meta.url), { workerData: task }), 'exit')
  })
  await Promise.all(workers)
}
process.stdout.write(`${(performance.now() - begin) / 1000}\n`)
