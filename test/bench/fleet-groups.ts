import { setTimeout as sleep } from 'node:timers/promises'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { median, type Row } from './figures.ts'
import type { Fleet } from './fleet-world.ts'
import { longestStall, type Server } from './servers.ts'

/** Longest that the groups of all organizations may take. */
const patienceSeconds = 1800

const matching = (text: string): ConditionGroup => ({
  operator: 'AND',
  conditions: [{ field: 'hostname', operator: 'contains', value: text }],
})

/**
 * A dynamic group in each organization: how long it takes to make one, and how soon all of them have the devices of their
 * filters, which have changed meanwhile.
 */
export async function fleetGroups(
  server: Server,
  { devices, orgIds, tokens }: Fleet,
  stalls: string,
): Promise<Row[]> {
  const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${server.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${tokens.system}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
    return (await response.json()) as T
  }
  const size = devices.toLocaleString('en-US')
  const filterIds: string[] = []
  const times: number[] = []
  await longestStall(server, stalls)
  for (const orgId of orgIds) {
    const filter = await call<{ id: string }>('POST', '/filters', {
      orgId,
      name: 'Desks',
      conditions: matching('desk'),
    })
    filterIds.push(filter.id)
    const from = performance.now()
    await call('POST', '/device-groups', {
      orgId,
      name: 'Desks',
      type: 'dynamic',
      filterId: filter.id,
    })
    times.push(performance.now() - from)
  }
  const made = await longestStall(server, stalls)
  const from = performance.now()
  for (const id of filterIds) await call('PATCH', `/filters/${id}`, { conditions: matching('srv') })
  const changedMs = performance.now() - from
  const now = async () => {
    const pages = Array.from({ length: Math.ceil(orgIds.length / 100) }, (_, n) => n + 1)
    const groups = []
    for (const page of pages) {
      const found = await call<{ data: { deviceCount: number; evaluatedAt: string | null }[] }>(
        'GET',
        `/device-groups?limit=100&page=${page}`,
      )
      groups.push(...found.data)
    }
    return groups
  }
  const begun = new Date(Date.now() - changedMs).toISOString()
  const end = performance.now() + patienceSeconds * 1000
  let groups = await now()
  while (groups.some(({ evaluatedAt }) => evaluatedAt === null || evaluatedAt < begun)) {
    if (performance.now() > end) throw new Error(`Groups are not up to date after ${patienceSeconds} s`)
    await sleep(250)
    groups = await now()
  }
  const seconds = (performance.now() - from) / 1000
  const moved = groups.reduce((sum, { deviceCount }) => sum + deviceCount, 0)
  return [
    {
      bench: 'fleet',
      subject: `${size}: a dynamic group in each of ${orgIds.length} organizations`,
      figures: {
        'ms each': median(times),
        'stall ms': made,
      },
    },
    {
      bench: 'fleet',
      subject: `${size}: their filters change`,
      figures: { seconds, 'devices moved': moved, 'stall ms': await longestStall(server, stalls) },
    },
  ]
}
