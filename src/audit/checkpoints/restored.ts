import type { Instant } from '../../core/time.ts'
import type { ChainHead } from '../chain.ts'
import { type Checkpoint, checkpointOrigin, keyIdOf, signingKeyOf } from './checkpoint.ts'
import { isSignedBy, parseNote, signNote } from './signed-note.ts'

/**
 * What `svc db restore` signs about each chain: it ends where it did in the backup, and what came after is lost. It explains
 * why a chain is no continuation of what was signed or seen of it before that time, and of nothing later.
 */
export type Restored = {
  orgId: string | null
  /** When the database was restored. */
  time: Instant
  backup: { madeAt: Instant; sha256: string }
  /** The end of the chain in the backup. */
  head: ChainHead
  /** How many entries the chain is known to have had; null: no later state was known. */
  ahead: number | null
}

function restoredText({ orgId, time, backup, head, ahead }: Restored): string {
  const lines = [
    checkpointOrigin(orgId),
    `restored ${time}`,
    `backup ${backup.madeAt} ${backup.sha256}`,
    `head ${head.seq} ${head.checksum}`,
    ...(ahead === null ? [] : [`ahead ${ahead}`]),
  ]
  return `${lines.join('\n')}\n`
}

export const signRestored = (restored: Restored, seed: Uint8Array): string =>
  signNote(restoredText(restored), [signingKeyOf(seed, restored.orgId)])

const restoredPattern =
  /^svc\/audit\/(system|[0-9a-f-]{36})\nrestored (\S{24})\nbackup (\S{24}) ([0-9a-f]{64})\nhead (0|[1-9]\d{0,15}) ([0-9a-f]{64})\n(?:ahead ([1-9]\d{0,15})\n)?$/

export type OpenedRestored =
  | { state: 'signed'; restored: Restored }
  | { state: 'foreign'; restored: Restored; keyIds: string[] }
  /** Under the name of one of these keys, which did not sign it. */
  | { state: 'forged' }
  | { state: 'unreadable' }

/** A statement of a restore, and whether one of these keys has signed it. */
export function openRestored(note: string, publicKeys: readonly Buffer[]): OpenedRestored {
  const parsed = parseNote(note)
  const [, chain, time, madeAt, sha256, seq, checksum, ahead] =
    (parsed && restoredPattern.exec(parsed.text)) ?? []
  if (!parsed || chain === undefined) return { state: 'unreadable' }
  const restored = {
    orgId: chain === 'system' ? null : chain,
    time: time!,
    backup: { madeAt: madeAt!, sha256: sha256! },
    head: { seq: Number(seq), checksum: checksum! },
    ahead: ahead === undefined ? null : Number(ahead),
  }
  const name = checkpointOrigin(restored.orgId)
  if (publicKeys.some((publicKey) => isSignedBy(parsed, { name, publicKey }))) {
    return { state: 'signed', restored }
  }
  const keyIds = parsed.signatures.map((one) => one.keyId.toString('hex'))
  const isForged = publicKeys.some((key) => keyIds.includes(keyIdOf(key, restored.orgId)))
  return isForged ? { state: 'forged' } : { state: 'foreign', restored, keyIds }
}

/**
 * Whether a restore lost what was signed or seen of the chain then, if the chain goes on from its head and contradicts that
 * state. What was signed between backup and restore is lost whatever its length: it may be of a branch that an earlier restore began.
 */
export const explains = (
  { head, time, backup }: Restored,
  state: { seq: number; checksum: string; time: Instant },
): boolean =>
  time > state.time &&
  (head.seq < state.seq || (backup.madeAt < state.time && head.checksum !== state.checksum))

/**
 * The restore that explains why a chain contradicts this checkpoint of it; undefined without one that a trusted key signed.
 * `goesOn`: whether the chain goes on from the end of the backup.
 */
export async function selectExplainingRestore(
  notes: readonly string[],
  { orgId, head, time }: Checkpoint,
  trusted: readonly Buffer[],
  goesOn: (restored: Restored) => Promise<boolean>,
): Promise<Restored | undefined> {
  for (const note of notes) {
    const opened = openRestored(note, trusted)
    // Whoever writes the database can put the genuine statement about another chain here.
    if (opened.state !== 'signed' || opened.restored.orgId !== orgId) continue
    if (explains(opened.restored, { ...head, time }) && (await goesOn(opened.restored)))
      return opened.restored
  }
  return undefined
}

/**
 * A statement of a restore in the header of a file: signed by a trusted key, by one that nothing vouches for, or unchecked
 * because no key is known. Only the first one explains anything.
 */
export type OpenedRestore = { restored: Restored; state: 'signed' | 'untrusted' | 'unchecked' }
