import { systemScope } from '../../core/scope.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { type ChainEntry, parseEntry } from '../chain.ts'
import { sealPendingFor } from '../outbox.ts'
import { entriesIn } from '../store.ts'
import { findAnchor } from './anchors.ts'
import { defaultPolicy, type RetentionPolicy, retentionActions, toAuditedPolicy } from './rules.ts'
import { getPolicy } from './store.ts'

type RecordedPolicy = { retentionDays: unknown; archiveToS3: unknown }

/**
 * Describes how a chain's stored retention settings differ from those the chain last recorded; undefined when
 * they match. An attacker with access to the database could otherwise remove a hold or shorten the days, and
 * have the service itself delete what must be kept and sign for it.
 */
export async function findUnrecordedChange(storage: Storage, chain: string): Promise<string | undefined> {
  const policy = () => getPolicy(storage.read, systemScope, chain)
  const before = await policy()
  await sealPendingFor(storage, systemScope, chain)
  const { isHeld, policy: recorded } = await findRecorded(storage.heavy, chain)
  // A change in the meantime is recorded too, after what was read here: the next run sees it.
  const after = await policy()
  if (isHeld && before.hold === null && after.hold === null)
    return 'The hold of the chain was taken away, and nobody released it'
  if (
    recorded &&
    isSamePolicy(toAuditedPolicy(before), toAuditedPolicy(after)) &&
    !isSamePolicy(recorded, toAuditedPolicy(after))
  )
    return `The chain is to keep entries for ${recorded.retentionDays} days${recorded.archiveToS3 ? ' and archive them' : ''}, and nobody who could changed that`
  return undefined
}

const isSamePolicy = (one: RecordedPolicy, other: RecordedPolicy): boolean =>
  one.retentionDays === other.retentionDays && one.archiveToS3 === other.archiveToS3

/**
 * Whether the last record in a chain is a hold, and its last recorded policy: as last changed, or as last
 * applied when entries were deleted. A chain without such a record has the default policy, unless the record
 * may have been deleted.
 */
async function findRecorded(
  db: Db,
  chain: string,
): Promise<{ isHeld: boolean; policy: RecordedPolicy | undefined }> {
  let isHeld: boolean | undefined
  let last: { policy: RecordedPolicy | undefined } | undefined
  for await (const { action, details } of newestEntries(db, chain, Object.values(retentionActions))) {
    if (action === retentionActions.hold || action === retentionActions.release)
      isHeld ??= action === retentionActions.hold
    else if (action === retentionActions.change) last ??= { policy: parsePolicy(details.after) }
    else if (Number(details.pruned) > 0) last ??= { policy: parsePolicy(details) }
    if (isHeld !== undefined && last) break
  }
  if (!last) {
    const { signed } = await findAnchor(db, systemScope, chain)
    last = { policy: signed === null ? toAuditedPolicy(defaultPolicy) : undefined }
  }
  return { isHeld: isHeld ?? false, policy: last.policy }
}

const parsePolicy = (value: unknown): RecordedPolicy | undefined => {
  const { retentionDays, archiveToS3 } = (value ?? {}) as Partial<RetentionPolicy>
  return retentionDays === undefined ? undefined : { retentionDays, archiveToS3 }
}

const batch = 50

/**
 * Successful entries with these actions, the newest first. They are matched by their signed texts, since a
 * column may have been changed.
 */
async function* newestEntries(db: Db, chain: string, names: string[]): AsyncGenerator<ChainEntry> {
  let before = Number.MAX_SAFE_INTEGER
  for (;;) {
    const rows = await entriesIn(db, systemScope)
      .select(['seq', 'canonical'])
      .where('chain', '=', chain)
      .where('seq', '<', before)
      // The action is the first field of the text (RFC 8785, section 3.2.3).
      .where((eb) => eb.or(names.map((name) => eb('canonical', 'like', `{"action":"${name}",%`))))
      .orderBy('seq', 'desc')
      .limit(batch)
      .execute()
    for (const { canonical } of rows) {
      const entry = parseEntry(canonical)
      if (entry?.result === 'success') yield entry
    }
    if (rows.length < batch) return
    before = rows.at(-1)!.seq
  }
}
