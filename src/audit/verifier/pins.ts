import { trustedKeys } from '../checkpoints/checkpoint.ts'
import { explains, type OpenedRestore } from '../checkpoints/restored.ts'
import type { SignedCheckpoint } from './signatures.ts'
import type { PinState, SoundVerdict, VerifierFinding } from './verdict.ts'

/** The last state of a chain that its verifier found sound, stored by the verifier. */
export type Pin = {
  seq: number
  checksum: string
  /** Root of the tree over the first `seq` entries, in base64; null when nothing named it. */
  root: string | null
  /** When it was seen. */
  time: string
  /** The time of its checkpoint, by the clock of the service; absent when none was checked. */
  signed?: string | undefined
  /** The key that had signed it, in base64; null when none was checked. */
  key: string | null
}

export type ObservedChain = {
  head: { seq: number; checksum: string }
  anchor: SignedCheckpoint | undefined
  signed: SignedCheckpoint | undefined
  /** The checksum of the pinned entry as the chain has it now. */
  seen: string | undefined
  successions: readonly string[]
  /** The restores that the chain goes on from. */
  restores: readonly OpenedRestore[]
}

/** Compares a sound chain with its pinned state. */
export function checkPin(pin: Pin | undefined, chain: ObservedChain): VerifierFinding | { state: PinState } {
  if (!pin) return { state: 'none' }
  const found = compareWithStatements(pin, chain)
  return 'kind' in found && !found.unverifiable ? found : (findWrongKey(pin, chain) ?? found)
}

function findWrongKey(pin: Pin, { head, signed, successions }: ObservedChain): VerifierFinding | undefined {
  const key = signed?.key
  if (!key || !pin.key) return undefined
  if (trustedKeys([key], successions).some((one) => one.toString('base64') === pin.key)) return undefined
  const message = 'The key that signed the chain before has not named the one that signs it now'
  return { kind: 'wrong_key', message, seq: head.seq, unverifiable: true }
}

/** A restore that the service has stated explains a history that is shorter than the pinned one. */
function compareWithStatements(pin: Pin, chain: ObservedChain): VerifierFinding | { state: PinState } {
  const found = compareWithPin(pin, chain)
  if (!('kind' in found) || !['truncated', 'rewritten'].includes(found.kind)) return found
  const explaining = chain.restores.filter(({ restored }) => explains(restored, stateOf(pin)))
  if (explaining.some(({ state }) => state === 'signed')) return { state: 'restored' }
  const unchecked = explaining.find(({ state }) => state === 'unchecked')
  if (unchecked === undefined) return found
  const { time } = unchecked.restored
  return { ...found, message: `${found.message}; a restore on ${time} is stated, which --key would check` }
}

/** A restore is later than a state when the service signed that state before, by the same clock. */
export const stateOf = ({ seq, checksum, signed, time }: Pin) => ({ seq, checksum, time: signed ?? time })

function compareWithPin(pin: Pin, chain: ObservedChain): VerifierFinding | { state: PinState } {
  const { head, anchor, signed } = chain
  if (head.seq < pin.seq) {
    const message = `Entries after ${head.seq} are missing: the chain had ${pin.seq} when it was last seen`
    return { kind: 'truncated', message, seq: head.seq + 1 }
  }
  const removed = anchor?.checkpoint.head.seq ?? 0
  if (pin.seq < removed) {
    if (anchor?.key) return { state: 'vouched' }
    const message = `Entry ${pin.seq}, last seen, was removed since, and no checked signature vouches for that: give --key`
    return { kind: 'unanchored', message, seq: pin.seq, unverifiable: true }
  }
  const isSame = pin.seq === head.seq && signed !== undefined
  const seen = pin.seq === removed && anchor ? anchor.checkpoint.head.checksum : chain.seen
  const root = isSame ? signed.checkpoint.root.toString('base64') : pin.root
  if ((seen ?? pin.checksum) === pin.checksum && (pin.root === null || pin.root === root))
    return { state: 'kept' }
  // Two trees of the same size, both signed: the service itself signed two histories.
  return isSame && signed.key && pin.key
    ? { kind: 'forked', message: `Two histories of ${pin.seq} entries are signed`, seq: pin.seq }
    : { kind: 'rewritten', message: `Entry ${pin.seq} is not the one that was last seen`, seq: pin.seq }
}

/** The pin of a sound chain. A key that is not checked this time is taken from the pin before. */
export function toPin(sound: SoundVerdict, now: string, before?: Pin): Pin {
  const { checkpoint, head } = sound
  const root = checkpoint.state === 'none' ? sound.root : checkpoint.root
  const key = checkpoint.state === 'signed' ? checkpoint.key : (before?.key ?? null)
  // A time that nobody checked may be of any day: an early one would let an old restore explain a later rollback.
  const signed = checkpoint.state === 'signed' ? checkpoint.time : undefined
  return { seq: head.seq, checksum: head.checksum, root, time: now, ...(signed && { signed }), key }
}
