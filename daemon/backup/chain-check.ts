import { entryLine, headerLine, toChainHead, trailerLine } from '../../src/audit/chain.ts'
import { openCheckpoint, signingKeyOf, trustedKeys } from '../../src/audit/checkpoints/checkpoint.ts'
import { orgOfChain } from '../../src/audit/rules.ts'
import { exportedText } from '../../src/audit/store.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import type { AuditLogRow } from '../../src/storage/schema/tables.ts'
import type { KnownKeys } from '../config.ts'
import type { UnmatchedKey } from '../key-fingerprints.ts'

type Fields = Readonly<Record<string, unknown>>
type Anchor = { seq: number; note: string; tree: string[] }
type Head = { seq: number; checksum: string }

/** The public keys that sign here; undefined when the rows were signed with a key that is not known here. */
export function verifyingKeys(
  { signing }: KnownKeys,
  unmatched: readonly UnmatchedKey[],
): Buffer[] | undefined {
  if (unmatched.some(({ name }) => name === 'AUDIT_SIGNING_KEY')) return undefined
  const seeds = [signing.current, signing.previous].filter((seed) => seed !== undefined)
  return seeds.map((seed) => signingKeyOf(seed, null).publicKey)
}

/**
 * Verifies the audit chains of a backup while its rows pass by. Files come before tables and tables by name, so where a
 * chain begins and ends, and what was signed of it, is known before its entries.
 */
export class ChainCheck {
  /** What is not sound, a sentence for each chain. */
  readonly faults: string[] = []
  readonly #keys: readonly Buffer[] | undefined
  readonly #successions: string[] = []
  readonly #anchors = new Map<string, Anchor>()
  readonly #heads = new Map<string, Head>()
  /** Of each chain the last checkpoint in the database, and the one of its file. */
  readonly #notes = new Map<string, { stored?: string; copied?: string }>()
  readonly #seen = new Set<string>()
  #open: { chain: string; verifier: ChainVerifier } | undefined

  /** `keys` are the public keys that sign here; undefined: no signature is checked. */
  constructor(keys: readonly Buffer[] | undefined) {
    this.#keys = keys
  }

  /** The keys that a signature of this service can be of; none where no signature is checked. */
  get trusted(): Buffer[] {
    return this.#keys === undefined ? [] : trustedKeys(this.#keys, this.#successions)
  }

  file(path: string, content: Buffer): void {
    const [folder, chain = ''] = path.split('/')
    if (folder !== 'checkpoints') return
    this.#notes.set(chain, { ...this.#notes.get(chain), copied: content.toString('utf8') })
  }

  rows(table: string, rows: readonly Fields[]): void {
    if (table === 'audit_logs') {
      this.#entries(rows as unknown as AuditLogRow[])
      return
    }
    for (const { chain, seq, checksum, note, tree, succession } of rows) {
      const name = String(chain)
      if (table === 'audit_anchors') {
        this.#anchors.set(name, { seq: Number(seq), note: String(note), tree: JSON.parse(String(tree)) })
      } else if (table === 'audit_heads') {
        this.#heads.set(name, { seq: Number(seq), checksum: String(checksum) })
      } else if (table === 'audit_checkpoints') {
        // They come in the order of their chains and numbers.
        this.#notes.set(name, { ...this.#notes.get(name), stored: String(note) })
      } else if (table === 'audit_keys' && succession !== null) this.#successions.push(String(succession))
    }
  }

  /** After the last table. */
  end(): void {
    this.#close()
    const known = new Set([...this.#heads.keys(), ...this.#anchors.keys(), ...this.#notes.keys()])
    for (const chain of known) {
      if (this.#seen.has(chain)) continue
      this.#begin(chain)
      this.#close()
    }
  }

  #entries(rows: readonly AuditLogRow[]): void {
    for (const [chain, own] of Map.groupBy(rows, (row) => row.chain)) {
      if (this.#open?.chain !== chain) {
        this.#close()
        // Of one that has a fault already the rest is not read.
        if (!this.#seen.has(chain)) this.#begin(chain)
      }
      const lines = own.map((row) => entryLine(row.checksum, exportedText(row)))
      this.#open?.verifier.push(Buffer.from(lines.join('')))
    }
  }

  #begin(chain: string): void {
    this.#seen.add(chain)
    const trusted = this.#keys && trustedKeys(this.#keys, this.#successions)
    const anchor = this.#anchors.get(chain)
    const { stored, copied } = this.#notes.get(chain) ?? {}
    let pin: Head & { time: string } = { seq: 0, checksum: '', time: '' }
    for (const note of [anchor?.note, stored, copied]) {
      if (note === undefined) continue
      const opened = openCheckpoint(note, trusted ?? [])
      if (opened.state === 'unreadable' || opened.checkpoint.orgId !== orgOfChain(chain)) {
        this.#fault(chain, 'what was signed of it cannot be read')
        return
      }
      if (trusted !== undefined && opened.state !== 'signed') {
        this.#fault(chain, 'what was signed of it was signed by another key')
        return
      }
      const { head, time } = opened.checkpoint
      if (head.seq > pin.seq && head.seq > (anchor?.seq ?? 0)) pin = { ...head, time }
    }
    const pinOf = () => (pin.seq === 0 ? undefined : { ...pin, root: null, key: null })
    const verifier = new ChainVerifier({ pinOf })
    const begin = anchor && { anchor: { note: anchor.note, tree: anchor.tree } }
    verifier.push(Buffer.from(headerLine(orgOfChain(chain), { ...begin, keys: [...this.#successions] })))
    this.#open = { chain, verifier }
  }

  #close(): void {
    if (this.#open === undefined) return
    const { chain, verifier } = this.#open
    this.#open = undefined
    verifier.push(Buffer.from(trailerLine(toChainHead(this.#heads.get(chain)))))
    const verdict = verifier.end()
    if (verdict.verdict !== 'sound') this.#fault(chain, verdict.fault.message)
  }

  #fault(chain: string, message: string): void {
    this.faults.push(`audit chain ${chain}: ${message}`)
  }
}
