import type { Client } from '../core/client.ts'
import { sites } from '../tenancy/contract.ts'
import { relativeTime } from './times.ts'

type Row = Readonly<Record<string, unknown>>

/** Site and last sign of life: what people know of two machines with one name. */
export async function describeDevices(client: Client, rows: readonly Row[]): Promise<string[]> {
  const siteIds = new Set(rows.flatMap(({ siteId }) => (typeof siteId === 'string' ? [siteId] : [])))
  const names = new Map<unknown, string>()
  const readName = async (id: string) => {
    // Who may not read sites is told the rest.
    const site = await client.call(sites.show, { params: { id } }).catch(() => undefined)
    if (site) names.set(id, site.name)
  }
  await Promise.all([...siteIds].map(readName))
  const now = Date.now()
  return rows.map(({ siteId, lastSeenAt }) => {
    const name = names.get(siteId)
    const seen = typeof lastSeenAt === 'string' ? `last seen ${relativeTime(lastSeenAt, now)}` : 'never seen'
    return name === undefined ? seen : `${name}, ${seen}`
  })
}
