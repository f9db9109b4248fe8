// Verifies a chain file and hashes its entries, by turns over the same bytes, in memory and time of its own.
// Runs as a process: node chain-child.ts <file> <rounds>
import { hash } from 'node:crypto'
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'

/** Seconds of each round, and resident memory at each tenth of the last one. */
export type ChainFigures = { verify: number[]; hash: number[]; bytes: number; memoryMb: number[] }

const pieceSize = 4 << 20
/** What a file or a connection gives at a time. */
const chunkSize = 64 << 10
const newline = 0x0a
const beforeEntry = '{"checksum":"'.length + 64 + '","entry":'.length

const [file = '', rounds = '1'] = process.argv.slice(2)
const figures: ChainFigures = { verify: [], hash: [], bytes: 0, memoryMb: [] }
for (let round = 0; round < Number(rounds); round++) {
  const last = round === Number(rounds) - 1
  const seconds = once(file, last ? figures.memoryMb : [])
  figures.verify.push(seconds.verify)
  figures.hash.push(seconds.hash)
  figures.bytes = seconds.bytes
}
process.stdout.write(`${JSON.stringify(figures)}\n`)

/** One pass: each piece of the file is verified and hashed, in alternating order. */
function once(path: string, memoryMb: number[]): { verify: number; hash: number; bytes: number } {
  const descriptor = openSync(path, 'r')
  const { size } = fstatSync(descriptor)
  const verifier = new ChainVerifier()
  const piece = Buffer.alloc(pieceSize)
  const total = { verify: 0, hash: 0, bytes: size }
  let rest = 0
  let done = 0
  for (let turn = 0; ; turn++) {
    const read = readSync(descriptor, piece, rest, pieceSize - rest, null)
    if (read === 0) break
    const filled = piece.subarray(0, rest + read)
    const end = filled.lastIndexOf(newline) + 1
    const entries = entriesIn(filled.subarray(0, end))
    const verify = () => {
      for (let at = 0; at < end; at += chunkSize)
        verifier.push(filled.subarray(at, Math.min(at + chunkSize, end)))
    }
    const bare = () => {
      for (const entry of entries) hash('sha256', entry, 'hex')
    }
    if (turn % 2) total.hash += timed(bare)
    total.verify += timed(verify)
    if (turn % 2 === 0) total.hash += timed(bare)
    piece.copyWithin(0, end, filled.length)
    rest = filled.length - end
    done += end
    if (done >= (size * (memoryMb.length + 1)) / 10) memoryMb.push(process.memoryUsage.rss() / 1e6)
  }
  closeSync(descriptor)
  const verdict = verifier.end()
  if (verdict.verdict !== 'sound')
    throw new Error(`The chain is ${verdict.verdict}: ${verdict.fault.message}`)
  return total
}

function entriesIn(bytes: Buffer): Buffer[] {
  const entries: Buffer[] = []
  let from = 0
  for (let end = bytes.indexOf(newline); end !== -1; end = bytes.indexOf(newline, from)) {
    if (end - from > beforeEntry + 100) entries.push(bytes.subarray(from + beforeEntry, end - 1))
    from = end + 1
  }
  return entries
}

function timed(work: () => void): number {
  const begin = performance.now()
  work()
  return (performance.now() - begin) / 1000
}
