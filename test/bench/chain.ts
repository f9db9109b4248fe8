import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import {
  canonicalText,
  checksumOf,
  entryLine,
  genesisChecksum,
  headerLine,
  trailerLine,
} from '../../src/audit/chain.ts'
import { newId } from '../../src/core/new-id.ts'
import type { ChainFigures } from './chain-child.ts'
import { firstLine, fromHere, removeFolder, start, temporaryFolder } from './children.ts'
import { atLeast, median, type Row, spreadOf } from './figures.ts'

/** Verification of a chain next to nothing but the hashing of its entries. */
export async function chain(
  options: { entries: number; rounds: number },
  say: (line: string) => void,
): Promise<Row[]> {
  const folder = temporaryFolder('chain')
  const file = join(folder, 'chain.ndjson')
  say(`chain: writing ${options.entries} entries`)
  await writeChain(file, options.entries)
  say('chain: verifying')
  const child = start([fromHere('./chain-child.ts'), file, String(options.rounds)])
  const figures = await firstLine(child, (line) => JSON.parse(line) as ChainFigures)
  removeFolder(folder)
  const { verify, hash, bytes, memoryMb } = figures
  const ratio = spreadOf(verify.map((seconds, round) => hash[round]! / seconds))
  const growth = memoryMb.at(-1)! - memoryMb[0]!
  return [
    {
      bench: 'chain',
      subject: 'verify a chain',
      against: 'SHA-256 of its entries',
      ratio,
      ...atLeast(ratio.median, 0.5),
      figures: {
        'entries/s': options.entries / median(verify),
        'MB/s': bytes / 1e6 / median(verify),
        'µs/entry': (median(verify) * 1e6) / options.entries,
        'bare µs/entry': (median(hash) * 1e6) / options.entries,
      },
    },
    {
      bench: 'chain',
      subject: 'memory while verifying',
      figures: { 'MB after the first tenth': memoryMb[0]!, 'MB at the end': memoryMb.at(-1)! },
      aim: 'flat (≤ 10 MB more)',
      met: growth <= 10,
    },
  ]
}

/** A chain as the service would stream it: people, agents, changes with before and after. */
export async function writeChain(file: string, entries: number): Promise<void> {
  const out = createWriteStream(file, { highWaterMark: 1 << 20 })
  const orgId = newId()
  const actors = Array.from({ length: 50 }, () => newId())
  const begin = Date.parse('2026-01-01T00:00:00.000Z')
  let head = { seq: 0, checksum: genesisChecksum }
  out.write(headerLine(orgId))
  for (let seq = 1; seq <= entries; seq++) {
    const limits = { usageCount: seq % 7, maxUsage: 10, expiresAt: '2026-12-31T00:00:00.000Z' }
    const canonical = canonicalText({
      id: newId(),
      orgId,
      seq,
      timestamp: new Date(begin + seq * 1000).toISOString(),
      actorType: 'user',
      actorId: actors[seq % actors.length]!,
      actorEmail: `person-${seq % actors.length}@example.com`,
      action: 'enrollment_key.rotate',
      resourceType: 'enrollment_key',
      resourceId: newId(),
      resourceName: `Reception – laptops ${seq}`,
      details: seq % 3 ? { before: limits, after: { ...limits, usageCount: 0 } } : { after: limits },
      ipAddress: '203.0.113.7',
      userAgent: 'svc/0.1.0 (linux; x64) node-v26',
      result: 'success',
      errorMessage: null,
      prevChecksum: head.checksum,
    })
    head = { seq, checksum: checksumOf(canonical) }
    if (!out.write(entryLine(head.checksum, canonical))) await once(out, 'drain')
  }
  out.end(trailerLine(head))
  await once(out, 'finish')
}
