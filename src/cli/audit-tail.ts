import { AuditEntry, auditLogs, textFilters } from '../audit/contract.ts'
import { orgOf } from './audit.ts'
import type { Session } from './base.ts'
import { leavesOf } from './columns.ts'
import { fieldsOf } from './fields.ts'
import { type FlagSet, flagFor } from './flags.ts'
import { type Batch, follow, merged, type Places } from './follow.ts'

const { heads, list } = auditLogs

const fields = fieldsOf(list).filter(({ key }) => Object.hasOwn(textFilters, key))

/** The filters of the lists that make sense of what comes in. */
export const filterFlags: FlagSet = Object.fromEntries(fields.map((field) => [field.flag, flagFor(field)]))

const usual = ['timestamp', 'user.email', 'action', 'resource.type', 'resource.name', 'result', 'id']

const pageSize = 100
const system = 'system'

/** The entries of one chain, or of every chain the caller can read, each in the order of its chain. */
export async function tailAudit(run: Session, flags: Record<string, unknown>): Promise<void> {
  const wanted = await orgOf(run)
  const filters = Object.fromEntries(fields.map(({ key, flag }) => [key, flags[flag]]))

  const placesNow = async (): Promise<Places> => {
    const { data } = await run.client.call(heads)
    const own = data.filter(({ orgId }) => wanted === undefined || orgId === wanted)
    const places = Object.fromEntries(own.map(({ orgId, seq }) => [orgId ?? system, seq]))
    return wanted === undefined ? places : { [wanted]: 0, ...places }
  }

  async function behind(chain: string, after: number) {
    const orgId = chain === system ? undefined : chain
    const query = { ...filters, orgId, after, limit: pageSize }
    const { data, head, pagination } = (await run.client.request(list, { query })) as {
      data: AuditEntry[]
      head: number
      pagination: { nextCursor: string | null }
    }
    const more = pagination.nextCursor !== null
    const last = data.at(-1)?.seq ?? 0
    // The chain may have grown after its head was read, and before these were.
    return { chain, rows: data, upTo: more ? last : Math.max(head, last), more }
  }

  await follow(run, flags, {
    kind: 'audit',
    columns: usual,
    known: leavesOf(AuditEntry),
    source: {
      async newest(lines) {
        const at = await placesNow()
        const query = { ...filters, orgId: wanted, limit: Math.min(lines, pageSize), skipCount: 'true' }
        const { data } = (await run.client.request(list, { query })) as { data: AuditEntry[] }
        const rows = data.filter(({ orgId, seq }) => seq <= (at[orgId ?? system] ?? 0)).reverse()
        return { rows: lines === 0 ? [] : rows, at, more: false }
      },
      async behind(at): Promise<Batch> {
        // One chain tells itself how long it is; of many, only those that grew are read.
        const now = wanted === undefined ? await placesNow() : { [wanted]: Number.POSITIVE_INFINITY }
        const grown = Object.keys(now).filter((chain) => now[chain]! > (at[chain] ?? 0))
        const parts: Awaited<ReturnType<typeof behind>>[] = []
        for (const chain of grown) parts.push(await behind(chain, at[chain] ?? 0))
        return {
          rows: merged(
            parts.map(({ rows }) => rows),
            ({ timestamp }) => timestamp,
          ),
          at: { ...at, ...Object.fromEntries(parts.map(({ chain, upTo }) => [chain, upTo])) },
          more: parts.some(({ more }) => more),
        }
      },
    },
  })
}
