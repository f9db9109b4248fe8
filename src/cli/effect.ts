import { ApiError, type RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import { formatNumber } from './progress.ts'

/** How many records of each kind a request would affect. */
export type Effect = Readonly<Record<string, number>>

const names: Readonly<Record<string, readonly [one: string, several: string]>> = {
  organizations: ['organization', 'organizations'],
  devices: ['device', 'devices'],
  apiKeys: ['API key', 'API keys'],
  enrollmentKeys: ['enrollment key', 'enrollment keys'],
  members: ['membership', 'memberships'],
  sites: ['site', 'sites'],
  roles: ['role', 'roles'],
  filters: ['saved filter', 'saved filters'],
  deviceGroups: ['device group', 'device groups'],
  scripts: ['script', 'scripts'],
  webhooks: ['webhook', 'webhooks'],
  ssoProviders: ['SSO provider', 'SSO providers'],
  trustPolicies: ['trust policy', 'trust policies'],
  deliveries: ['delivery', 'deliveries'],
  identities: ['linked identity', 'linked identities'],
  limitedApiKeys: ['API key in part', 'API keys in part'],
  pendingDeliveries: ['pending delivery', 'pending deliveries'],
  selections: ['selection of it by a member of the partner', 'selections of it by members of the partner'],
  sessions: ['session', 'sessions'],
  groupMembers: ['membership of a device', 'memberships of devices'],
}

/** What ends with a record, where another entry for the same record knows it. */
export type Ends = {
  entry: Endpoint
  query?: Readonly<Record<string, unknown>>
  counts(reply: Record<string, unknown>): Effect
}

/** undefined where the service does not count it, or not for the caller. */
export async function effectOf(
  { client }: CommandContext,
  { effect }: Endpoint,
  ends: Ends | undefined,
  { params = {} }: RawInput,
): Promise<Effect | undefined> {
  if (effect) return (await client.request(effect, { params })) as Effect
  if (!ends) return undefined
  try {
    const { entry, query = {}, counts } = ends
    return counts((await client.request(entry, { params, query })) as Record<string, unknown>)
  } catch (failure) {
    // Who may delete a record need not be allowed to read it.
    if (failure instanceof ApiError && failure.status === 403) return undefined
    throw failure
  }
}

export const addEffects = (a: Effect, b: Effect): Effect =>
  Object.fromEntries(Object.entries(b).map(([kind, count]) => [kind, count + (a[kind] ?? 0)]))

/** `3 devices, 1 API key`; empty where nothing is affected. */
export const formatCounts = (effect: Effect): string =>
  Object.entries(effect)
    .filter(([, count]) => count > 0)
    .map(([kind, count]) => `${formatNumber(count)} ${names[kind]?.[count === 1 ? 0 : 1] ?? kind}`)
    .join(', ')

/** What a deletion does, for the question before it. */
export const formatEffect = (effect: Effect | undefined, summary: string): string =>
  effect === undefined
    ? summary
    : `This ends ${formatCounts(effect) || 'nothing else'}; the audit log is kept`
