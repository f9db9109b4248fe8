import {
  type ChainEntry,
  canonicalText,
  checksumOf,
  entryLine,
  genesisChecksum,
  headerLine,
  trailerLine,
} from '../../src/audit/chain.ts'
import { type Checkpoint, signCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { Frontier, leafHash } from '../../src/audit/checkpoints/merkle-tree.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import { ChainVerifier, type VerifierOptions } from '../../src/audit/verifier/verifier.ts'

/** Chain files created without a service, intact or damaged. */

export const orgId = '01920000-0000-7000-8000-000000000001'
export const otherOrg = '01920000-0000-7000-8000-000000000002'
export const seed = Buffer.alloc(32, 1)
export const otherSeed = Buffer.alloc(32, 2)
export const time = '2026-03-02T00:00:00.000Z'

export type Sealed = { text: string; checksum: string }

type Change = Partial<Omit<ChainEntry, 'seq' | 'prevChecksum'>>

/** The first entries of a chain; `change` alters some of them. */
export function sealed(
  count: number,
  change: (seq: number) => Change = () => ({}),
  org: string | null = orgId,
): Sealed[] {
  let prevChecksum = genesisChecksum
  return Array.from({ length: count }, (_, at) => {
    const seq = at + 1
    const text = canonicalText({
      id: `01920000-0000-7000-8000-${String(seq).padStart(12, '0')}`,
      orgId: org,
      seq,
      timestamp: new Date(Date.parse('2026-03-01T12:00:00.000Z') + seq * 1000).toISOString(),
      actorType: 'user',
      actorId: orgId,
      actorEmail: 'zoë@example.com',
      action: 'site.create',
      resourceType: 'site',
      resourceId: null,
      resourceName: 'Größe "1"',
      // As similar to the fields of the entry as a caller can make them.
      details: { prevChecksum: genesisChecksum, text: '"prevChecksum":"x","seq":1,"timestamp":"' },
      ipAddress: '127.0.0.1',
      userAgent: null,
      result: 'success',
      errorMessage: null,
      ...change(seq),
      prevChecksum,
    })
    prevChecksum = checksumOf(text)
    return { text, checksum: prevChecksum }
  })
}

export type Bundle = {
  org?: string | null
  /** The seed of the signing key; unsigned when null. */
  by?: Buffer | null
  /** The number of entries removed by retention, and the seed that signed the anchor. */
  pruned?: number
  anchoredBy?: Buffer
  successions?: string[]
}

const frontierOver = (entries: readonly Sealed[]): Frontier => {
  const frontier = new Frontier()
  for (const { text } of entries) frontier.push(leafHash(text))
  return frontier
}

export function noteOver(
  entries: readonly Sealed[],
  by: Buffer,
  kind: Checkpoint['kind'] = 'checkpoint',
  org: string | null = orgId,
): string {
  const head = { seq: entries.length, checksum: entries.at(-1)?.checksum ?? genesisChecksum }
  return signCheckpoint({ orgId: org, kind, head, root: frontierOver(entries).root(), time }, by)
}

export function anchorOver(entries: readonly Sealed[], by: Buffer, org: string | null = orgId) {
  const tree = frontierOver(entries).roots.map((root) => root.toString('base64'))
  return { note: noteOver(entries, by, 'anchor', org), tree }
}

/** The lines of a chain's file: header, entries, trailer. */
export function bundle(entries: readonly Sealed[], options: Bundle = {}): string[] {
  const { org = orgId, by = seed, pruned = 0, anchoredBy = by ?? seed, successions } = options
  const anchor = pruned > 0 ? anchorOver(entries.slice(0, pruned), anchoredBy, org) : undefined
  const head = { seq: entries.length, checksum: entries.at(-1)?.checksum ?? genesisChecksum }
  return [
    headerLine(org, { anchor, keys: successions }),
    ...entries.slice(pruned).map(({ text, checksum }) => entryLine(checksum, text)),
    trailerLine(head, by ? noteOver(entries, by, 'checkpoint', org) : undefined),
  ]
}

export const bytesOf = (lines: readonly string[]): Buffer => Buffer.from(lines.join(''))

export function verified(
  file: readonly string[] | Buffer,
  trust: VerifierOptions = {},
  chunk = 1 << 16,
): Verdict {
  const bytes = Buffer.isBuffer(file) ? file : bytesOf(file)
  const verifier = new ChainVerifier(trust)
  for (let at = 0; at < bytes.length; at += chunk) {
    const verdict = verifier.push(Buffer.from(bytes.subarray(at, at + chunk)))
    if (verdict) return verdict
  }
  return verifier.end()
}

/** `sound`, or the kind of the fault. */
export const kindOf = (verdict: Verdict): string =>
  verdict.verdict === 'sound' ? 'sound' : verdict.fault.kind
