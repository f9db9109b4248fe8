import { AuditEntry, auditLogs, textFilters } from '../audit/contract.ts'
import { resolveAuditOrg } from './audit-org.ts'
import type { CommandContext } from './base.ts'
import { schemaColumns } from './columns.ts'
import { fieldsOf } from './fields.ts'
import { type FlagSet, fieldFlag } from './flags.ts'
import { type Batch, follow, mergeByTime, type Positions } from './follow.ts'

const { heads, list } = auditLogs

const fields = fieldsOf(list).filter(({ key }) => Object.hasOwn(textFilters, key))

/** The filters of the lists that apply to new entries. */
export const filterFlags: FlagSet = Object.fromEntries(fields.map((field) => [field.flag, fieldFlag(field)]))

const usual = ['timestamp', 'user.email', 'action', 'resource.type', 'resource.name', 'result', 'id']

const pageSize = 100
const system = 'system'

/** The entries of one chain, or of every chain the caller can read, each in the order of its chain. */
export async function tailAudit(run: CommandContext, flags: Record<string, unknown>): Promise<void> {
  const wanted = await resolveAuditOrg(run)
  const filters = Object.fromEntries(fields.map(({ key, flag }) => [key, flags[flag]]))

  const currentPositions = async (): Promise<Positions> => {
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
    known: schemaColumns(AuditEntry),
    terminal: { secondary: ['resource.type', 'id'] },
    source: {
      async newest(lines) {
        const at = await currentPositions()
        const query = { ...filters, orgId: wanted, limit: Math.min(lines, pageSize), skipCount: 'true' }
        const { data } = (await run.client.request(list, { query })) as { data: AuditEntry[] }
        const rows = data.filter(({ orgId, seq }) => seq <= (at[orgId ?? system] ?? 0)).reverse()
        return { rows: lines === 0 ? [] : rows, at, more: false }
      },
      async after(at): Promise<Batch> {
        // A single chain returns its head with its entries; of many, only those that grew are read.
        const now = wanted === undefined ? await currentPositions() : { [wanted]: Number.POSITIVE_INFINITY }
        const grown = Object.keys(now).filter((chain) => now[chain]! > (at[chain] ?? 0))
        const parts: Awaited<ReturnType<typeof behind>>[] = []
        for (const chain of grown) parts.push(await behind(chain, at[chain] ?? 0))
        return {
          rows: mergeByTime(
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
