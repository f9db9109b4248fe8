import { readSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'
import { ChainScanner, type ScanStart } from './chain-scanner.ts'
import { Forest } from './forest.ts'
import { readLine } from './lines.ts'
import type { LinkedRun } from './verifier.ts'

/** Verifies ranges of a file: each is scanned from its first line on, as if everything before it were sound. */

export type RangeTask = {
  descriptor: number
  place: Pick<ScanStart, 'orgId' | 'watch'>
  tree: boolean
  ranges: readonly ByteRange[]
  /** How many ranges the threads have taken: one number, shared by all of them. */
  taken: Int32Array
}

/** The lines that begin in these bytes of the file. */
export type ByteRange = { from: number; to: number }

/** `at` is after the last line, or before a line that is not the next entry. */
export type ScannedRange = { run: LinkedRun | undefined; from: number; at: number; isWhole: boolean }

export type RangeMessage = { index: number; walked: ScannedRange }

const newline = 0x0a
/** Longer than nearly every line. */
const readBytes = 16 << 10
const maxBufferBytes = 32 << 20
const { descriptor, place, tree, ranges, taken } = workerData as RangeTask
let buffer: Buffer = Buffer.allocUnsafe(1 << 20)

for (let index = takeRange(); index < ranges.length; index = takeRange()) {
  const found: RangeMessage = { index, walked: scanRange(ranges[index]!) }
  parentPort?.postMessage(found)
}

function takeRange(): number {
  return Atomics.add(taken, 0, 1)
}

function scanRange(range: ByteRange): ScannedRange {
  const from = range.from === 0 ? 0 : nextLineStart(range.from - 1)
  let at = from
  let scanner: ChainScanner | undefined
  let before = { seq: 0, checksum: '' }
  while (at < range.to) {
    const read = readSync(descriptor, buffer, 0, buffer.length, at)
    const bytes = buffer.subarray(0, read)
    // A line that begins after the range belongs to the next one.
    const last = at + read > range.to ? bytes.indexOf(newline, range.to - at - 1) : bytes.lastIndexOf(newline)
    if (last === -1) {
      if (read < buffer.length || buffer.length >= maxBufferBytes) break
      buffer = Buffer.allocUnsafe(buffer.length * 2)
      continue
    }
    const lines = bytes.subarray(0, last + 1)
    if (!scanner) {
      const first = readLine(lines.subarray(0, lines.indexOf(newline)))
      if (first.is !== 'entry') break
      before = { seq: first.seq - 1, checksum: first.link }
      scanner = new ChainScanner({ ...place, head: before, forest: tree ? new Forest() : undefined })
    }
    const end = scanner.scan(lines, 0)
    at += end
    if (end < lines.length) break
  }
  const head = scanner && { seq: scanner.seq, checksum: scanner.link }
  const run = head && {
    entries: scanner!.entries,
    before,
    head,
    seen: [...scanner!.seen],
    trees: scanner!.forest?.trees ?? [],
  }
  return { run, from, at, isWhole: at >= range.to }
}

/** Where the first line after a byte begins. */
function nextLineStart(byte: number): number {
  for (let at = byte; ; at += readBytes) {
    const read = readSync(descriptor, buffer, 0, readBytes, at)
    const end = buffer.subarray(0, read).indexOf(newline)
    if (end !== -1) return at + end + 1
    if (read < readBytes) return at + read
  }
}
