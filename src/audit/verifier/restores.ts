import type { Checkpoint } from '../checkpoints/checkpoint.ts'
import { explains, type OpenedRestore, openRestored, type Restored } from '../checkpoints/restored.ts'
import { type Pin, stateOf } from './pins.ts'
import type { OpenResult } from './signatures.ts'
import type { RestoreReport } from './verdict.ts'

export function openRestores(
  notes: readonly string[],
  orgId: string | null,
  trusted: readonly Buffer[] | undefined,
): OpenResult<{ restores: OpenedRestore[] }> {
  const restores: OpenedRestore[] = []
  for (const [at, note] of notes.entries()) {
    const name = `Statement ${at + 1} of a restore`
    const opened = openRestored(note, trusted ?? [])
    if (opened.state === 'unreadable' || opened.state === 'forged') {
      return { finding: { kind: 'altered', message: `${name} is not what was signed` } }
    }
    if (opened.restored.orgId !== orgId) {
      return { finding: { kind: 'foreign', message: `${name} is of another chain` } }
    }
    // Of a former key, as after a restore that accepted the loss of it: it explains nothing, and is no fault of what follows.
    const state = opened.state === 'signed' ? 'signed' : trusted ? 'untrusted' : 'unchecked'
    restores.push({ restored: opened.restored, state })
  }
  return { restores }
}

/** Whether the chain goes on from where this restore left it; a later restore may have gone back before that. */
export function isOfChain(
  { head, time }: Restored,
  seen: ReadonlyMap<number, string>,
  anchor: Checkpoint | undefined,
): boolean {
  const removed = anchor?.head
  // Entries beyond the end of the backup were removed after the restore.
  if (removed && head.seq < removed.seq) return anchor.time > time
  if (head.seq === 0) return true
  return head.checksum === (head.seq === removed?.seq ? removed.checksum : seen.get(head.seq))
}

/** `pin` is the state that was lost, if any. */
export function reportOf({ restored, state }: OpenedRestore, pin: Pin | undefined): RestoreReport {
  const { time, backup, head, ahead } = restored
  const isBeyond = pin && pin.seq > head.seq && explains(restored, stateOf(pin))
  const to = Math.max(ahead ?? 0, isBeyond ? pin.seq : 0)
  return {
    time,
    backup,
    lost: { from: head.seq + 1, to: to === 0 ? null : to },
    state,
  }
}
