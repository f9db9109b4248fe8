import type { ChainHead } from '../chain.ts'

/** Kinds of faults of a chain; man/svc-audit.7 defines each. */
type FaultKind =
  | 'altered'
  | 'missing'
  | 'inserted'
  | 'reordered'
  | 'relinked'
  | 'foreign'
  | 'truncated'
  | 'forked'
  | 'rewritten'
  | 'wrong_key'
  | 'unanchored'
  | 'unsigned'
  | 'unreadable'

export type ChainFault = {
  kind: FaultKind
  message: string
  seq: number
  /** The entry that does not fit, as far as it can be read. */
  entry?: { id?: string; action?: string; timestamp?: string }
}

export type CheckpointState =
  | { state: 'none' }
  /** It matches the chain, but its signature was not checked. */
  | { state: 'unchecked'; time: string; root: string }
  | { state: 'signed'; time: string; root: string; key: string }

/**
 * Relation to the pin: no pin, a state that the chain still contains, a state that only the signed anchor
 * covers, or one that a signed statement of a restore says was lost. The code that stores a new pin sets `new`.
 */
export type PinState = 'none' | 'kept' | 'vouched' | 'restored' | 'new'

/** That the database was restored from a backup. */
export type RestoreReport = {
  time: string
  /** When the backup was made, and the digest of its archive. */
  backup: { madeAt: string; sha256: string }
  /** The entries that are known to be lost; `to` is null when nothing says how many there were. */
  lost: { from: number; to: number | null }
  /** Whether a trusted key signed it, another one, or no key is known. */
  state: 'signed' | 'untrusted' | 'unchecked'
}

type VerdictBase = { orgId: string | null; entries: number }

export type SoundVerdict = VerdictBase & {
  verdict: 'sound'
  head: ChainHead
  /** The last entry that retention has removed. */
  anchor: ChainHead | null
  checkpoint: CheckpointState
  /** Root of the tree over every entry, when it was computed. */
  root: string | null
  pin: PinState
  /** Oldest first. */
  restores: RestoreReport[]
}

export type Verdict =
  | SoundVerdict
  | (VerdictBase & { verdict: 'tampered'; fault: ChainFault })
  | (VerdictBase & { verdict: 'unverifiable'; fault: ChainFault })

/** A fault. With `unverifiable` it proves nothing against the chain: what is needed to judge it is missing. */
export type VerifierFinding = { kind: FaultKind; message: string; seq?: number; unverifiable?: boolean }
