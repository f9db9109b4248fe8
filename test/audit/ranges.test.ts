import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { signingKeyOf } from '../../src/audit/checkpoints/checkpoint.ts'
import { emptyRoot, Frontier, leafHash } from '../../src/audit/checkpoints/merkle-tree.ts'
import { Forest } from '../../src/audit/verifier/forest.ts'
import { verifyRanges } from '../../src/audit/verifier/ranges.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import type { VerifierOptions } from '../../src/audit/verifier/verifier.ts'
import { bundle, bytesOf, orgId, sealed, seed, verified } from './bundles.ts'

const folder = mkdtempSync(join(tmpdir(), 'svc-ranges-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

async function inThreads(
  bytes: Buffer,
  trust: VerifierOptions,
  range: number,
  threads = 2,
): Promise<Verdict> {
  const path = join(folder, 'chain.ndjson')
  writeFileSync(path, bytes)
  const descriptor = openSync(path, 'r')
  try {
    return await verifyRanges(descriptor, { size: bytes.length, threads, trust, range })
  } finally {
    closeSync(descriptor)
  }
}

const entries = sealed(60)
const key = signingKeyOf(seed, orgId).publicKey
const good = bundle(entries, { pruned: 7 })
const pin = { seq: 33, checksum: entries[32]!.checksum, root: null, time: '', key: null }
const trust: VerifierOptions = { keys: [key], tree: true, pinOf: () => pin }

/** Random damage to lines or bytes, including none. */
const damaging = fc.oneof(
  fc.constant((lines: string[]) => bytesOf(lines)),
  fc.nat().map((at) => (lines: string[]) => bytesOf(lines.toSpliced(1 + (at % (lines.length - 1)), 1))),
  fc.tuple(fc.nat(), fc.nat()).map(([from, to]) => (lines: string[]) => {
    const line = lines[from % lines.length]!
    return bytesOf(lines.toSpliced(to % lines.length, 0, line))
  }),
  fc.tuple(fc.nat(), fc.nat()).map(([a, b]) => (lines: string[]) => {
    const [from, to] = [a % lines.length, b % lines.length]
    return bytesOf(lines.with(from, lines[to]!).with(to, lines[from]!))
  }),
  fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })).map(([at, mask]) => (lines: string[]) => {
    const bytes = bytesOf(lines)
    bytes[at % bytes.length]! ^= mask
    return bytes
  }),
  fc.nat().map((at) => (lines: string[]) => {
    const bytes = bytesOf(lines)
    return bytes.subarray(0, at % bytes.length)
  }),
)

describe('a file that is verified in threads', () => {
  it('has the same verdict as without threads, for ranges of any size', async () => {
    await fc.assert(
      fc.asyncProperty(damaging, fc.integer({ min: 40, max: 9000 }), async (spoil, range) => {
        const bytes = spoil(good)
        expect(await inThreads(bytes, trust, range)).toEqual(verified(bytes, trust))
      }),
      { numRuns: 25 },
    )
  })

  it('is sound with more threads than ranges, and when the chain is empty', async () => {
    const expected = { verdict: 'sound', entries: 53, head: { seq: 60 }, pin: 'kept' }
    expect(await inThreads(bytesOf(good), trust, 1 << 20, 4)).toMatchObject(expected)
    expect(await inThreads(Buffer.alloc(0), trust, 1 << 20)).toEqual(verified([], trust))
    expect(await inThreads(bytesOf(bundle([])), {}, 10)).toEqual(verified(bundle([])))
  })

  it('may have lines longer than the read buffer', async () => {
    const long = 'x'.repeat(1_500_000)
    const lines = bundle(sealed(3, (seq) => (seq === 2 ? { errorMessage: long } : {})))
    expect(await inThreads(bytesOf(lines), trust, 900_000)).toEqual(verified(lines, trust))
  })
})

describe('a forest', () => {
  it('that was grown in parts has the root of the whole tree', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 70 }), fc.array(fc.nat({ max: 70 })), (size, cuts) => {
        const leaves = Array.from({ length: size }, (_, at) => leafHash(`leaf ${at}`))
        const whole = new Frontier()
        for (const leaf of leaves) whole.push(leaf)
        const bounds = [0, ...cuts.map((cut) => Math.min(cut, size)).sort((a, b) => a - b), size]
        const joined = new Forest()
        for (let n = 1; n < bounds.length; n++) {
          const part = new Forest()
          for (let at = bounds[n - 1]!; at < bounds[n]!; at++)
            part.push(at, 1, leaves[at]!.toString('latin1'))
          for (const { from, size, hash } of part.trees) joined.push(from, size, hash)
        }
        expect(joined.root(emptyRoot)).toEqual(whole.root())
        expect(Forest.of(whole).root(emptyRoot)).toEqual(whole.root())
      }),
    )
  })
})
