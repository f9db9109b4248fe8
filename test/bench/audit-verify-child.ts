// Goes over a chain file once in threads, in memory and time of its own.
// Runs as a process: node audit-verify-child.ts verify|hash <file> <threads>
import { once } from 'node:events'
import { fstatSync, openSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { verifyRanges } from '../../src/audit/verifier/ranges.ts'
import type { HashTask } from './audit-hash-thread.ts'

export type VerifyFigures = { seconds: number; memoryMb: number }

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
const figures: VerifyFigures = {
  seconds: (performance.now() - begin) / 1000,
  memoryMb: process.resourceUsage().maxRSS / 1000,
}
process.stdout.write(`${JSON.stringify(figures)}\n`)
