import { ApiError, type Client } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { isId } from '../core/ids.ts'
import type { Resource } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { resourceNames } from './flags.ts'
import { fetchAllRows } from './pages.ts'
import { escapeToOneLine } from './table.ts'

export { isId }

type Row = { id: string } & Record<string, unknown>

type Lookup = {
  list: () => Promise<Endpoint>
  /** Name fields of a record, the most specific first. */
  names: readonly string[]
  /** Query that narrows the list to records that may match. */
  narrow?: (name: string) => Record<string, unknown>
  /** The list can be limited to one organization. */
  byOrg?: true
  /** The list can be limited to one partner's own records. */
  byPartner?: true
}

const tenancy = () => import('../tenancy/contract.ts')

const identity = () => import('../identity/contract.ts')

const lookups: { [R in Resource]?: Lookup } = {
  partner: { list: async () => (await tenancy()).partners.list, names: ['slug', 'name'] },
  organization: { list: async () => (await tenancy()).orgs.list, names: ['slug', 'name'] },
  site: { list: async () => (await tenancy()).sites.list, names: ['name'], byOrg: true },
  enrollment_key: {
    list: async () => (await import('../credentials/enrollment-keys/contract.ts')).enrollmentKeys.list,
    names: ['name'],
    byOrg: true,
  },
  api_key: {
    list: async () => (await import('../credentials/api-keys/contract.ts')).apiKeys.list,
    names: ['name'],
    byOrg: true,
  },
  device: {
    list: async () => (await import('../devices/contract.ts')).devices.list,
    names: ['hostname', 'displayName'],
    narrow: (name) => ({ search: name.slice(0, 100) }),
    byOrg: true,
  },
  filter: {
    list: async () => (await import('../filters/contract.ts')).filters.list,
    names: ['name'],
    narrow: (name) => ({ search: name }),
  },
  role: {
    list: async () => (await import('../identity/roles/contract.ts')).roles.list,
    names: ['name'],
    byOrg: true,
    byPartner: true,
  },
  device_group: {
    list: async () => (await import('../groups/contract.ts')).deviceGroups.list,
    names: ['name'],
    narrow: (name) => ({ search: name.slice(0, 100) }),
    byOrg: true,
  },
  script: {
    list: async () => (await import('../scripts/contract.ts')).scripts.list,
    names: ['name'],
    narrow: (name) => ({ search: name.slice(0, 100) }),
    byOrg: true,
  },
  alert: {
    list: async () => (await import('../alerts/contract.ts')).alerts.list,
    names: ['title'],
    narrow: (title) => ({ search: title.slice(0, 100) }),
    byOrg: true,
  },
  webhook: {
    list: async () => (await import('../webhooks/contract.ts')).webhooks.list,
    names: ['name'],
    byOrg: true,
  },
  sso_provider: {
    list: async () => (await import('../sso/contract.ts')).ssoProviders.list,
    names: ['name'],
    byOrg: true,
  },
  trust_policy: {
    list: async () => (await import('../trust/contract.ts')).trustPolicies.list,
    names: ['name'],
    byOrg: true,
  },
  agent_rollout: {
    list: async () => (await import('../agents/rollouts/contract.ts')).agentRollouts.list,
    names: ['version'],
  },
  user: {
    list: async () => (await identity()).users.list,
    names: ['email', 'name'],
    narrow: (name) => ({ q: name }),
    byOrg: true,
  },
}

/** Resolves `word` to the id of a record: an id, else a slug, name or hostname among the records the caller can see. */
export async function resolveId(
  client: Client,
  resource: Resource,
  word: string,
  /** The organization or partner to search, and whether the caller named it explicitly. */
  within: { orgId?: string | undefined; partnerId?: string | undefined; insists?: boolean } = {},
): Promise<string> {
  if (isId(word)) return word.toLowerCase()
  const lookup = lookups[resource]
  if (!lookup) throw usageError(`"${word}" is not the id of ${article(resourceNames[resource])}`)
  const entry = await lookup.list()
  const narrow = lookup.narrow?.(word) ?? {}
  const { orgId, partnerId } = within
  const orgQuery =
    lookup.byOrg && orgId ? { orgId } : lookup.byPartner && partnerId ? { partnerId } : undefined

  const inOrg = orgQuery && (await find(client, entry, { ...narrow, ...orgQuery }, lookup, word))
  if (inOrg?.matches.length === 1) return inOrg.matches[0]!.id
  const found =
    inOrg && (inOrg.matches.length > 1 || within.insists)
      ? inOrg
      : await find(client, entry, narrow, lookup, word)
  if (found.matches.length === 1) return found.matches[0]!.id
  if (found.matches.length > 1) throw ambiguous(resource, word, found.matches, lookup)

  const where = inOrg && within.insists ? 'in this organization' : 'among those you can see'
  const hint =
    didYouMean(word, found.names.map(escapeToOneLine)) ??
    (found.usual.length > 0 && found.usual.length <= 10
      ? `there are: ${found.usual.map(escapeToOneLine).join(', ')}`
      : undefined)
  throw new CliError(`No ${resourceNames[resource]} "${word}" ${where}`, {
    exit: exitCodes.notFound,
    code: 'not_found',
    ...(hint && { hint }),
  })
}

/**
 * The same for an organization whose audit log is requested, which may have been deleted. A slug in use means
 * the existing organization; a name that several have had is ambiguous.
 */
export async function resolveOrgOrDeleted(client: Client, word: string): Promise<string> {
  if (isId(word)) return word.toLowerCase()
  const { deleted, bySlug } = await deletedOrgs(client, word)
  if (deleted.length === 0) return resolveId(client, 'organization', word)
  const live = await resolveId(client, 'organization', word).catch((failure: unknown) => {
    if (failure instanceof CliError && failure.exit === exitCodes.notFound) return undefined
    throw failure
  })
  if (live !== undefined && bySlug) return live
  const [only] = deleted
  if (live === undefined && deleted.length === 1) return only!.id
  const all = live === undefined ? deleted : [{ id: live, name: word }, ...deleted]
  throw ambiguous('organization', word, all, lookups.organization!)
}

/** The deleted organizations that match `word` best. */
async function deletedOrgs(client: Client, word: string): Promise<{ deleted: Row[]; bySlug: boolean }> {
  const { heads } = (await import('../audit/contract.ts')).auditLogs
  const { data } = await client.call(heads).catch((failure: unknown) => {
    // Callers without access to audit logs see no deleted organization.
    if (failure instanceof ApiError && failure.status === 403) return { data: [] }
    throw failure
  })
  const gone = data.flatMap(({ orgId, slug, name, deletedAt }) =>
    orgId !== null && deletedAt
      ? [{ id: orgId, slug, name: `${name}, deleted ${deletedAt}`, known: name }]
      : [],
  )
  const same = (one: string | null) => one?.toLowerCase() === word.toLowerCase()
  const tiers = [
    gone.filter(({ slug }) => slug === word),
    gone.filter(({ known }) => known === word),
    gone.filter(({ slug, known }) => same(slug) || same(known)),
  ]
  const at = tiers.findIndex((tier) => tier.length > 0)
  return { deleted: at === -1 ? [] : tiers[at]!, bySlug: at === 0 }
}

/** Matches of the most specific kind, and every name seen. */
async function find(
  client: Client,
  entry: Endpoint,
  query: Record<string, unknown>,
  lookup: Lookup,
  word: string,
) {
  const tiers: Row[][] = [...lookup.names.map(() => []), []]
  const names = new Set<string>()
  const usual = new Set<string>()
  for await (const row of fetchAllRows(client, entry, query) as AsyncIterable<Row>) {
    for (const [tier, key] of lookup.names.entries()) {
      const name = row[key]
      if (typeof name !== 'string') continue
      if (names.size < 5000) names.add(name)
      if (tier === 0 && usual.size <= 10) usual.add(name)
      if (name === word) tiers[tier]!.push(row)
      else if (name.toLowerCase() === word.toLowerCase()) tiers.at(-1)!.push(row)
    }
  }
  const best = tiers.find((tier) => tier.length > 0) ?? []
  return {
    matches: [...new Map(best.map((row) => [row.id, row])).values()],
    names: [...names],
    usual: [...usual],
  }
}

function ambiguous(resource: Resource, word: string, matches: Row[], lookup: Lookup): CliError {
  const lines = matches.slice(0, 20).map((row) => {
    const name = lookup.names
      .map((key) => row[key])
      .filter(Boolean)
      .join(', ')
    const parent = row.orgId ?? row.partnerId
    return `  ${escapeToOneLine(row.id)}  ${escapeToOneLine(name)}${parent ? `  (in ${escapeToOneLine(String(parent))})` : ''}`
  })
  const rest = matches.length > 20 ? [`  and ${matches.length - 20} more`] : []
  const text = `"${word}" is the name of ${matches.length} ${resourceNames[resource]}s:\n${[...lines, ...rest].join('\n')}`
  return new CliError(text, {
    exit: exitCodes.usage,
    code: 'ambiguous',
    hint: 'use the id, or narrow the search with --org',
  })
}

const article = (noun: string): string => `${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}`
