import { statfsSync } from 'node:fs'
import { join } from 'node:path'
import type { VerifyFigures } from './audit-verify-child.ts'
import { writeChain } from './chain.ts'
import type { ChainFigures } from './chain-child.ts'
import { firstLine, fromHere, removeFolder, start, temporaryFolder } from './children.ts'
import { atLeast, atMost, median, type Row, spreadOf } from './figures.ts'

const bytesPerEntry = 850
const threads = 2

/** Verification of a long chain in a file: in one thread and in two, next to the bare hashing of its entries. */
export async function auditVerify(
  { quick }: { quick: boolean },
  say: (line: string) => void,
): Promise<Row[]> {
  const entries = quick ? 1_000_000 : 10_000_000
  const folder = temporaryFolder('audit-verify')
  const { bavail, bsize } = statfsSync(folder)
  if (bavail * bsize < entries * bytesPerEntry * 1.5) {
    say(`audit: verification is left out, ${entries} entries do not fit in ${folder}`)
    removeFolder(folder)
    return []
  }
  const file = join(folder, 'chain.ndjson')
  say(`audit: writing ${entries} entries`)
  await writeChain(file, entries)
  say('audit: verifying in one thread')
  const child = start([fromHere('./chain-child.ts'), file, '1'])
  const single = await firstLine(child, (line) => JSON.parse(line) as ChainFigures, 1_800_000)
  const rounds = quick ? 5 : 3
  const verified: VerifyFigures[] = []
  const hashed: VerifyFigures[] = []
  for (let round = 1; round <= rounds; round++) {
    say(`audit: verifying in ${threads} threads, ${round} of ${rounds}`)
    verified.push(await pass('verify', file))
    hashed.push(await pass('hash', file))
  }
  removeFolder(folder)
  const one = spreadOf(single.verify.map((seconds, round) => single.hash[round]! / seconds))
  const two = spreadOf(verified.map(({ seconds }, round) => hashed[round]!.seconds / seconds))
  const rate = (seconds: number) => ({ 'rows/s': entries / seconds, 'MB/s': single.bytes / 1e6 / seconds })
  const seconds = median(verified.map((one) => one.seconds))
  const memory = Math.max(...verified.map(({ memoryMb }) => memoryMb))
  return [
    {
      bench: 'audit',
      subject: `verify ${entries} rows, 1 thread`,
      against: 'SHA-256 of them',
      ratio: one,
      ...atLeast(one.median, 0.5),
      figures: { ...rate(median(single.verify)), 'bare rows/s': entries / median(single.hash) },
    },
    {
      bench: 'audit',
      subject: `verify ${entries} rows, ${threads} threads`,
      against: 'reading and SHA-256 in two',
      ratio: two,
      ...atLeast(two.median, 0.9),
      figures: {
        ...rate(seconds),
        'bare rows/s': entries / median(hashed.map((one) => one.seconds)),
        'to SHA-256 in one thread': median(single.hash) / seconds,
      },
    },
    {
      bench: 'audit',
      subject: `memory of ${threads} threads`,
      figures: { 'MB at most': memory },
      ...atMost(memory, 150, ' MB'),
    },
  ]
}

function pass(what: 'verify' | 'hash', file: string): Promise<VerifyFigures> {
  const child = start([fromHere('./audit-verify-child.ts'), what, file, String(threads)])
  return firstLine(child, (line) => JSON.parse(line) as VerifyFigures, 1_800_000)
}
