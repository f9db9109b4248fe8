import type { ChainHead } from '../chain.ts'

/** What can be wrong with a chain; man/svc-audit.7 defines each. */
export type FaultKind =
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
  /** It says what the chain is, and nobody has checked its signature. */
  | { state: 'unchecked'; time: string; root: string }
  | { state: 'signed'; time: string; root: string; key: string }

/**
 * What was known of the chain before: nothing, a state that it still holds, or one that only its signed anchor
 * speaks of. `new` is said by whoever keeps it now.
 */
export type PinState = 'none' | 'kept' | 'vouched' | 'new'

type VerdictBase = { orgId: string | null; entries: number }

export type SoundVerdict = VerdictBase & {
  verdict: 'sound'
  head: ChainHead
  /** The last of the entries that retention has removed. */
  anchor: ChainHead | null
  checkpoint: CheckpointState
  /** Root of the tree over every entry, when it was computed. */
  root: string | null
  pin: PinState
}

export type Verdict =
  | SoundVerdict
  | (VerdictBase & { verdict: 'tampered'; fault: ChainFault })
  | (VerdictBase & { verdict: 'unverifiable'; fault: ChainFault })

/** Faults that prove nothing against a chain: what was needed to judge it is not there. */
export type Finding = { kind: FaultKind; message: string; seq?: number; unverifiable?: boolean }
