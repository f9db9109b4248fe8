// Reads a part of a chain file and hashes each entry; nothing is compared.
import { hash } from 'node:crypto'
import { readSync } from 'node:fs'
import { workerData } from 'node:worker_threads'

export type HashTask = { descriptor: number; from: number; to: number }

const newline = 0x0a
const beforeEntry = '{"checksum":"'.length + 64 + '","entry":'.length
const { descriptor, from, to } = workerData as HashTask
const piece = Buffer.allocUnsafe(1 << 20)
for (let at = from; at < to; ) {
  const read = readSync(descriptor, piece, 0, Math.min(piece.length, to - at), at)
  let line = 0
  for (let end = piece.indexOf(newline); end !== -1 && end < read; end = piece.indexOf(newline, line)) {
    if (end - line > beforeEntry) hash('sha256', piece.subarray(line + beforeEntry, end - 1), 'hex')
    line = end + 1
  }
  at += line === 0 ? read : line
}
