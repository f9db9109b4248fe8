import { once } from 'node:events'
import { statfsSync } from 'node:fs'
import { join } from 'node:path'
import { writeChain } from './chain.ts'
import type { ChainFigures } from './chain-child.ts'
import { firstLine, fromHere, removeFolder, start, temporaryFolder } from './children.ts'
import { atLeast, atMost, median, type Row, spreadOf } from './figures.ts'
import { residentMb, svc, svcEnv } from './servers.ts'

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
  const rounds = 6
  const verified: number[] = []
  const hashed: number[] = []
  for (let round = 1; round <= rounds; round++) {
    say(`audit: verifying in ${threads} threads, ${round} of ${rounds}`)
    if (round % 2) verified.push(await pass('verify', file))
    hashed.push(await pass('hash', file))
    if (round % 2 === 0) verified.push(await pass('verify', file))
  }
  say(`audit: memory of svc audit verify in ${threads} threads`)
  const memory = await memoryOf(['audit', 'verify', file, '--threads', String(threads)])
  removeFolder(folder)
  const one = spreadOf(single.verify.map((seconds, round) => single.hash[round]! / seconds))
  const two = spreadOf(verified.map((seconds, round) => hashed[round]! / seconds))
  const rate = (seconds: number) => ({ 'rows/s': entries / seconds, 'MB/s': single.bytes / 1e6 / seconds })
  const seconds = median(verified)
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
        'bare rows/s': entries / median(hashed),
        'to SHA-256 in one thread': median(single.hash) / seconds,
      },
    },
    {
      bench: 'audit',
      subject: `svc audit verify, memory of ${threads} threads`,
      figures: { 'MB at most': memory },
      ...atMost(memory, 150, ' MB'),
    },
  ]
}

/** Seconds. */
function pass(what: 'verify' | 'hash', file: string): Promise<number> {
  const child = start([fromHere('./audit-verify-child.ts'), what, file, String(threads)])
  return firstLine(child, Number, 1_800_000)
}

/** The most that a command had in memory, in MB. */
async function memoryOf(command: readonly string[]): Promise<number> {
  const child = start([svc, ...command], { env: svcEnv() })
  child.stdout!.resume()
  let max = Number.NaN
  const timer = setInterval(() => {
    max = residentMb(child, 'VmHWM') ?? max
  }, 50)
  const [code] = await once(child, 'exit')
  clearInterval(timer)
  if (code !== 0) throw new Error(`svc ${command.join(' ')}: exit ${code}`)
  return max
}
