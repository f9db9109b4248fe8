import { linkEntries, recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import type { TestService } from '../harness.ts'

export const happening = (orgId: string | null, more: Partial<AuditEvent> = {}): AuditEvent => ({
  orgId,
  actorType: 'system',
  actorId: null,
  actorEmail: null,
  action: 'thing.happen',
  resourceType: 'thing',
  resourceId: null,
  resourceName: null,
  details: {},
  ipAddress: null,
  userAgent: null,
  result: 'success',
  ...more,
})

/** Records events like the service, each with its time. */
export async function recorded({ storage }: TestService, all: [AuditEvent, string][]): Promise<void> {
  await storage.write(async (tx) => {
    for (const [one, at] of all) await recordAudit(tx, toDraftEntry(one, at))
  })
}

/** Appends the given number of sealed entries to a chain, each with an actor. */
export async function piled({ storage }: TestService, chain: string, count: number): Promise<void> {
  await sealPending(storage)
  const head = storage.read.selectFrom('audit_heads').select(['seq', 'checksum']).where('chain', '=', chain)
  const start = Date.parse('2031-01-01T00:00:00Z')
  const drafts = Array.from({ length: count }, (_, n) => {
    const said = happening(chain, { action: 'pile.up', resourceName: `number ${n}`, actorId: newId() })
    return toDraftEntry(said, new Date(start + n * 1000).toISOString())
  })
  const rows = linkEntries(chain, await head.executeTakeFirstOrThrow(), drafts)
  for (let from = 0; from < rows.length; from += 500) {
    const some = rows.slice(from, from + 500)
    await storage.write((tx) => tx.insertInto('audit_logs').values(some).execute())
  }
  const { seq, checksum } = rows.at(-1)!
  const moved = { seq, checksum }
  await storage.write((tx) => tx.updateTable('audit_heads').set(moved).where('chain', '=', chain).execute())
}
