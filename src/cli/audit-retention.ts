import type { AuditRetention } from '../audit/retention/contract.ts'
import { auditRetention } from '../audit/retention/contract.ts'
import { confirmOrThrow, printTarget } from './ask.ts'
import { resolveAuditOrg } from './audit-org.ts'
import type { CommandContext } from './base.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { printRecord } from './print.ts'
import { formatEntries, formatNumber, progressBar } from './progress.ts'

type Flags = { yes?: boolean; 'dry-run'?: boolean }

const nothing = 'No entry is beyond its retention'

/** Shows the entries beyond their retention, asks, and deletes them call by call. */
export async function prune(session: CommandContext, flags: Flags): Promise<void> {
  const { client, output } = session
  const query = { orgId: await resolveAuditOrg(session) }
  const before = await client.call(auditRetention.show, { query: { ...query, due: 'true' } })
  const { entries, upTo } = before.due ?? { entries: 0, upTo: null }
  const extent = entries === 0 ? nothing : `${formatEntries(entries)}, up to ${upTo}`
  if (flags['dry-run']) {
    const record = { dryRun: true, state: before.hold ? 'held' : 'more', entries, upTo }
    const held = before.hold ? `, but the log is held: ${before.hold.reason}` : ''
    return printRecord(
      output,
      record,
      undefined,
      () => `${extent}${entries > 0 ? ' would be deleted' : ''}${held}\n`,
    )
  }
  if (entries > 0 && !before.hold) await confirm(session, flags, extent)
  const { state, pruned, retention } = await run(session, query, entries)
  if (state !== 'done') throw refusalOf(state, pruned, retention)
  const record = { state, pruned, retention }
  const rest = retention.anchor ? `; the log begins after entry ${formatNumber(retention.anchor.seq)}` : ''
  await printRecord(output, record, undefined, () =>
    pruned === 0 ? `${nothing}\n` : `${formatEntries(pruned)} deleted${rest}\n`,
  )
}

async function confirm(
  { settings, interactive }: CommandContext,
  { yes }: Flags,
  extent: string,
): Promise<void> {
  printTarget(settings)
  await confirmOrThrow(`Delete ${extent}? This cannot be undone`, {
    yes,
    interactive,
    hint: `--dry-run shows what would be deleted: ${extent}`,
    refused: { message: 'Nothing was deleted' },
  })
}

async function run({ client }: CommandContext, query: { orgId: string | undefined }, total: number) {
  const progress = progressBar('Deleting', 'entries', total)
  let pruned = 0
  try {
    for (;;) {
      const reply = await client.call(auditRetention.run, { query })
      pruned += reply.pruned
      progress.done(pruned)
      if (reply.state !== 'more') return { ...reply, pruned }
    }
  } finally {
    progress.end()
  }
}

type State = 'more' | 'held' | 'busy' | 'read' | 'failed'

function refusalOf(state: State, pruned: number, { hold, lastError }: AuditRetention): CliError {
  const deleted = pruned > 0 ? `${formatNumber(pruned)} entries were deleted, then it stopped: ` : ''
  const [message, hint] = {
    more: ['there is more', 'Run it again'],
    held: [`the log is held: ${hold?.reason ?? ''}`, 'svc audit hold release allows deletion again'],
    busy: ['another run is in progress', 'svc audit retention shows its progress'],
    read: ['somebody is exporting or verifying the log', 'Run it again when they are done'],
    failed: [
      lastError?.message ?? 'it failed',
      'The service tries again by itself; svc audit retention shows it',
    ],
  }[state] as [string, string]
  const exit = state === 'failed' || state === 'more' ? exitCodes.failure : exitCodes.conflict
  return new CliError(`${deleted}${message}`, { code: `retention_${state}`, exit, hint })
}

export function formatRetention(reply: Record<string, unknown>): string {
  const it = reply as AuditRetention
  const { retentionDays, archiveToS3, archive, anchor, hold, lastError, lastCleanupAt, due } = it
  const archived = archive.upTo === null ? '' : `, ${archive.objects} objects up to entry ${archive.upTo}`
  const rows: [string, string | undefined][] = [
    ['Kept', `${retentionDays} days`],
    [
      'Archive',
      `${archiveToS3 ? 'yes' : 'no'}${archive.configured ? '' : ' (none is configured)'}${archived}`,
    ],
    ['Hold', hold ? `${hold.reason} (${hold.userEmail ?? 'unknown'}, ${hold.since})` : 'no'],
    [
      'Deleted',
      anchor ? `${formatNumber(anchor.prunedCount)} entries, up to entry ${anchor.seq}` : 'nothing yet',
    ],
    ['Last run', lastCleanupAt ?? 'never'],
    ['Due', due && `${formatNumber(due.entries)} entries${due.upTo ? `, up to ${due.upTo}` : ''}`],
    ['Failed', lastError ? `${lastError.at}: ${lastError.message}` : undefined],
  ]
  return rows
    .flatMap(([name, text]) => (text === undefined ? [] : `${`${name}:`.padEnd(10)}${text}\n`))
    .join('')
}
