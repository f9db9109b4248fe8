import type { ChainHead, HeaderAnchor } from '../chain.ts'
import {
  type Checkpoint,
  keyIdOf,
  openCheckpoint,
  openSuccession,
  trustedKeys,
} from '../checkpoints/checkpoint.ts'
import { Frontier } from '../checkpoints/merkle-tree.ts'
import { parseVerifier } from '../checkpoints/signed-note.ts'
import { Forest } from './forest.ts'
import type { VerifierFinding } from './verdict.ts'

export type SignedCheckpoint = {
  checkpoint: Checkpoint
  /** The trusted key that signed it; undefined when no key is known, or none of those that signed it. */
  key: Buffer | undefined
  /** Why its signature proves nothing, although keys are trusted. */
  unverified?: VerifierFinding
}

export type OpenResult<T> = ({ finding?: undefined } & T) | { finding: VerifierFinding }

/**
 * Parses a file of keys: one per line, as `svc audit key` prints them or as base64 of the 32 bytes alone; `#`
 * begins a comment. The name of a key states for which chain it was printed, but the key is the same for all
 * chains.
 * @returns the number of the first line that is not a key
 */
export function readKeys(text: string): Buffer[] | number {
  const keys: Buffer[] = []
  for (const [at, line] of text.split('\n').entries()) {
    const content = line.replace(/(^|\s)#.*$/, '').trim()
    if (content === '') continue
    const key = parseVerifier(content)?.publicKey ?? parseBareKey(content)
    if (!key) return at + 1
    keys.push(key)
  }
  return keys
}

const parseBareKey = (text: string): Buffer | undefined =>
  /^[A-Za-z0-9+/]{43}=$/.test(text) ? Buffer.from(text, 'base64') : undefined

/**
 * Adds the keys that signed successions connect to the trusted ones. A succession not signed by both keys is a
 * fault of the file.
 */
export function expandTrustedKeys(
  trusted: readonly Buffer[] | undefined,
  successions: readonly string[],
): OpenResult<{ keys: Buffer[] | undefined }> {
  const broken = successions.findIndex((note) => !openSuccession(note))
  if (broken !== -1) {
    return {
      finding: { kind: 'altered', message: `Succession ${broken + 1} of the keys is not signed by both` },
    }
  }
  return { keys: trusted && trustedKeys(trusted, successions) }
}

const kindNames = { checkpoint: 'The checkpoint', anchor: 'The anchor' }

function openSigned(
  note: string,
  kind: Checkpoint['kind'],
  orgId: string | null,
  trusted: readonly Buffer[] | undefined,
): OpenResult<SignedCheckpoint> {
  const name = kindNames[kind]
  const opened = openCheckpoint(note, trusted ?? [])
  if (opened.state === 'unreadable' || opened.checkpoint.kind !== kind) {
    const message = `${name} cannot be read`
    return { finding: { kind: kind === 'anchor' ? 'unanchored' : 'unreadable', message } }
  }
  const { checkpoint } = opened
  if (checkpoint.orgId !== orgId)
    return { finding: { kind: 'foreign', message: `${name} is of another chain` } }
  if (opened.state === 'signed') return { checkpoint, key: opened.publicKey }
  if (!trusted) return { checkpoint, key: undefined }
  if (trusted.some((key) => opened.keyIds.includes(keyIdOf(key, orgId))))
    return { finding: { kind: 'altered', message: `${name} is not what was signed` } }
  const message = `${name} is signed by key ${opened.keyIds.join(', ')}, which no trusted key vouches for`
  return { checkpoint, key: undefined, unverified: { kind: 'wrong_key', message, unverifiable: true } }
}

export type OpenedAnchor = SignedCheckpoint & { forest: Forest }

/** Opens the anchor of a chain, and the tree over the entries that it replaces. */
export function openAnchor(
  { note, tree }: HeaderAnchor,
  orgId: string | null,
  trusted: readonly Buffer[] | undefined,
): OpenResult<OpenedAnchor> {
  const opened = openSigned(note, 'anchor', orgId, trusted)
  if (opened.finding) return opened
  const { checkpoint, unverified } = opened
  const { head, root } = checkpoint
  const frontier = frontierOf(head.seq, tree)
  return frontier?.root().equals(root)
    ? { ...opened, forest: Forest.of(frontier), ...(unverified && { unverified: { ...unverified, seq: 1 } }) }
    : { finding: { kind: 'altered', message: 'The tree of the anchor is not the one that the anchor names' } }
}

function frontierOf(size: number, tree: readonly string[]): Frontier | undefined {
  const roots = tree.map((one) => Buffer.from(one, 'base64'))
  const sound = roots.every((root, at) => root.length === 32 && root.toString('base64') === tree[at])
  try {
    return sound ? new Frontier(size, roots) : undefined
  } catch {
    // The number of roots does not fit the size.
    return undefined
  }
}

/**
 * Compares the checkpoint at the end of a file with the recomputed chain. It reports `unverified` only where the other checks
 * prove no fault.
 */
export function checkCheckpoint(
  note: string | undefined,
  chain: { orgId: string | null; head: ChainHead; root: Buffer | undefined },
  trusted: readonly Buffer[] | undefined,
): OpenResult<{ signed: SignedCheckpoint | undefined; unverified?: VerifierFinding | undefined }> {
  if (note === undefined) {
    if (!trusted) return { signed: undefined }
    const message = 'Nobody has signed this chain: it has no checkpoint'
    return { signed: undefined, unverified: { kind: 'unsigned', message, unverifiable: true } }
  }
  const opened = openSigned(note, 'checkpoint', chain.orgId, trusted)
  if (opened.finding) return opened
  const { head, root } = opened.checkpoint
  const finding = compareHeads('the checkpoint', head, chain.head)
  if (finding) return { finding }
  if (chain.root && !chain.root.equals(root)) {
    return { finding: { kind: 'forked', message: 'The checkpoint names the chain, but the tree of another' } }
  }
  return { signed: opened, unverified: opened.unverified }
}

/** The fault when a chain does not end at the stated head. */
export function compareHeads(who: string, stated: ChainHead, chain: ChainHead): VerifierFinding | undefined {
  if (stated.seq > chain.seq) {
    const message = `Entries after ${chain.seq} are missing: ${who} says that the chain went on to ${stated.seq}`
    return { kind: 'truncated', message, seq: chain.seq + 1 }
  }
  if (stated.seq < chain.seq) {
    const message = `The chain goes on after entry ${stated.seq}, where ${who} says that it ended`
    return { kind: 'inserted', message, seq: stated.seq + 1 }
  }
  if (stated.checksum === chain.checksum) return undefined
  return {
    kind: 'rewritten',
    message: `The chain is sound in itself, but not the one of ${who}`,
    seq: Math.max(1, chain.seq),
  }
}
