import type { Instant } from '../../core/time.ts'
import type { ChainHead } from '../chain.ts'
import { chainOf } from '../rules.ts'
import type { TreeHead } from './merkle-tree.ts'
import {
  isSignedBy,
  keyId,
  type Note,
  parseNote,
  type SigningKey,
  signingKey,
  signNote,
} from './signed-note.ts'

/**
 * What the service signs about a chain: checkpoints (C2SP tlog-checkpoint), anchors, and successions of its
 * key. It is pure, so a server signs and an auditor verifies with it. man/svc-audit.7 has the format.
 */

/** Names the log and its key, so that a signature is valid for one chain only. */
export const checkpointOrigin = (orgId: string | null): string => `svc/audit/${chainOf(orgId)}`

/**
 * The state of a chain at a time: `head` is its newest entry, `tree` covers all entries up to it. An anchor
 * states the same of the part that retention has removed.
 */
export type Checkpoint = {
  orgId: string | null
  kind: 'checkpoint' | 'anchor'
  head: ChainHead
  root: Buffer
  time: Instant
}

const prunedLine = 'pruned'

export function checkpointText({ orgId, kind, head, root, time }: Checkpoint): string {
  const lines = [
    checkpointOrigin(orgId),
    head.seq,
    root.toString('base64'),
    `head ${head.checksum}`,
    `time ${time}`,
  ]
  return `${[...lines, ...(kind === 'anchor' ? [prunedLine] : [])].join('\n')}\n`
}

const checkpointPattern =
  /^svc\/audit\/(system|[0-9a-f-]{36})\n(0|[1-9]\d{0,15})\n([A-Za-z0-9+/]{43}=)\nhead ([0-9a-f]{64})\ntime (\S{24})\n(pruned\n)?$/

/** The checkpoint or anchor in the text of a note; undefined when the text is neither. */
function parseCheckpoint(text: string): Checkpoint | undefined {
  const [, chain, seq, root, checksum, time, pruned] = checkpointPattern.exec(text) ?? []
  if (chain === undefined) return undefined
  return {
    orgId: chain === 'system' ? null : chain,
    kind: pruned ? 'anchor' : 'checkpoint',
    head: { seq: Number(seq), checksum: checksum! },
    root: Buffer.from(root!, 'base64'),
    time: time!,
  }
}

export const treeHeadOf = ({ head, root }: Checkpoint): TreeHead => ({ size: head.seq, root })

/** The service signs every chain with the same seed, under the chain's own key name. */
export const signingKeyOf = (seed: Uint8Array, orgId: string | null): SigningKey =>
  signingKey(checkpointOrigin(orgId), seed)

export const signCheckpoint = (checkpoint: Checkpoint, seed: Uint8Array): string =>
  signNote(checkpointText(checkpoint), [signingKeyOf(seed, checkpoint.orgId)])

export type OpenedCheckpoint =
  | { state: 'signed'; checkpoint: Checkpoint; publicKey: Buffer }
  /** Signed by another key: `keyIds` are the ids of its signatures, in hexadecimal. */
  | { state: 'foreign'; checkpoint: Checkpoint; keyIds: string[] }
  | { state: 'unreadable' }

/** A signed checkpoint or anchor, and whether one of these keys has signed it. */
export function openCheckpoint(note: string, publicKeys: readonly Buffer[]): OpenedCheckpoint {
  const parsed = parseNote(note)
  const checkpoint = parsed && parseCheckpoint(parsed.text)
  if (!checkpoint) return { state: 'unreadable' }
  const publicKey = findSigningKey(parsed, checkpointOrigin(checkpoint.orgId), publicKeys)
  if (publicKey) return { state: 'signed', checkpoint, publicKey }
  return {
    state: 'foreign',
    checkpoint,
    keyIds: parsed.signatures.map((one) => one.keyId.toString('hex')),
  }
}

const findSigningKey = (note: Note, name: string, publicKeys: readonly Buffer[]): Buffer | undefined =>
  publicKeys.find((publicKey) => isSignedBy(note, { name, publicKey }))

/** Name of the keys in a succession. */
const keysName = 'svc/audit/keys'

/** From this time on the service signs with another key; both keys sign that statement. */
export type Succession = { from: Buffer; to: Buffer; time: Instant }

export function signSuccession(older: Uint8Array, newer: Uint8Array, time: Instant): string {
  const keys = [signingKey(keysName, older), signingKey(keysName, newer)]
  const [from, to] = keys.map(({ publicKey }) => publicKey.toString('base64'))
  return signNote(`${keysName}\nfrom ${from}\nto ${to}\ntime ${time}\n`, keys)
}

/** A succession that both of its keys have signed; undefined when it is not one. */
export function openSuccession(note: string): Succession | undefined {
  const parsed = parseNote(note)
  const fields = /^svc\/audit\/keys\nfrom ([A-Za-z0-9+/]{43}=)\nto ([A-Za-z0-9+/]{43}=)\ntime (\S{24})\n$/
  const [, from, to, time] = (parsed && fields.exec(parsed.text)) ?? []
  if (!parsed || !from || !to || !time) return undefined
  const pair = { from: Buffer.from(from, 'base64'), to: Buffer.from(to, 'base64') }
  const both = [pair.from, pair.to].every((publicKey) => isSignedBy(parsed, { name: keysName, publicKey }))
  return both ? { ...pair, time } : undefined
}

/** The keys connected to these by signed successions, before them and after them, themselves included. */
export function trustedKeys(publicKeys: readonly Buffer[], successions: readonly string[]): Buffer[] {
  const known = [...publicKeys]
  const open = successions.flatMap((note) => openSuccession(note) ?? [])
  const knows = (key: Buffer) => known.some((one) => one.equals(key))
  for (let grew = true; grew; ) {
    const met = open.flatMap(({ from, to }) => (knows(from) ? [to] : knows(to) ? [from] : []))
    const fresh = met.filter((key, at) => !knows(key) && met.findIndex((one) => one.equals(key)) === at)
    known.push(...fresh)
    grew = fresh.length > 0
  }
  return known
}

/** The id of a key for one chain, as in its signatures. */
export const keyIdOf = (publicKey: Buffer, orgId: string | null): string =>
  keyId({ name: checkpointOrigin(orgId), publicKey }).toString('hex')
