import { ApiError, type Client } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { isId } from '../core/ids.ts'
import type { Resource } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { article, resourceNames } from './flags.ts'
import { idBeginningOf } from './id-beginning.ts'
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
  /** What tells records of one name apart, for each of them. */
  describe?: (client: Client, rows: readonly Row[]) => Promise<readonly string[]>
  /** The list can be limited to one organization. */
  byOrg?: true
  /** The list can be limited to one partner's own records. */
  byPartner?: true
  /** What to do where none is found, for records without names. */
  hint?: string
}

const tenancy = () => import('../tenancy/contract.ts')

const identity = () => import('../identity/contract.ts')

export const lookups: { [R in Resource]?: Lookup } = {
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
    describe: async (client, rows) => (await import('./device-candidates.ts')).describeDevices(client, rows),
    byOrg: true,
    hint: 'svc devices --search TEXT finds parts of names',
  },
  filter: {
    list: async () => (await import('../filters/contract.ts')).filters.list,
    names: ['name'],
    narrow: (name) => ({ search: name }),
    byOrg: true,
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
  configuration_apply: {
    list: async () => (await import('../configuration/history/contract.ts')).configurationApplies.list,
    names: [],
    byOrg: true,
    byPartner: true,
    hint: 'svc config history lists them',
  },
  user: {
    list: async () => (await identity()).users.list,
    names: ['email', 'name'],
    narrow: (name) => ({ q: name }),
    byOrg: true,
  },
}

/** Resolves `word` to the id of a record: an id or its beginning, else a slug, name or hostname among the records the caller can see. */
export async function resolveId(
  client: Client,
  resource: Resource,
  word: string,
  /** The organization or partner to search, and whether the caller named it explicitly. */
  within: { orgId?: string | undefined; partnerId?: string | undefined; insists?: boolean } = {},
): Promise<string> {
  if (isId(word)) return word.toLowerCase()
  if (word.trim() === '')
    throw usageError(`"${word}" is not the id or name of ${article(resourceNames[resource])}`)
  const lookup = lookups[resource]
  if (!lookup) throw usageError(`"${word}" is not the id of ${article(resourceNames[resource])}`)
  const entry = await lookup.list()
  const { orgId, partnerId } = within
  const orgQuery =
    lookup.byOrg && orgId ? { orgId } : lookup.byPartner && partnerId ? { partnerId } : undefined

  const inOrg = orgQuery && (await find(client, entry, orgQuery, lookup, word))
  if (inOrg?.matches.length === 1) return inOrg.matches[0]!.id
  const found =
    inOrg && (inOrg.matches.length > 1 || within.insists)
      ? inOrg
      : await find(client, entry, {}, lookup, word)
  if (found.matches.length === 1) return found.matches[0]!.id
  if (found.matches.length > 1) throw await ambiguous(client, resource, word, found.matches)

  const where = inOrg && within.insists ? 'in this organization' : 'among those you can see'
  const hint =
    didYouMean(word, found.names.map(escapeToOneLine)) ??
    (found.usual.length > 0 && found.usual.length <= 10
      ? `there are: ${found.usual.map(escapeToOneLine).join(', ')}`
      : lookup.hint)
  throw new CliError(`No ${resourceNames[resource]} "${word}" ${where}`, {
    exit: exitCodes.notFound,
    code: 'not_found',
    ...(hint && { hint }),
  })
}

/**
 * The id of an organization whose audit log is requested, which may have been deleted. A slug in use means
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
  throw await ambiguous(client, 'organization', word, all)
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

/** What a record is called, for somebody who has named it by its id; undefined where nothing says so. */
export async function describeById(
  client: Client,
  resource: Resource,
  id: string,
): Promise<string | undefined> {
  const lookup = lookups[resource]
  if (!lookup) return undefined
  const query = lookup.narrow ? { idPrefix: id } : {}
  for await (const row of fetchAllRows(client, await lookup.list(), query) as AsyncIterable<Row>) {
    if (row.id !== id) continue
    const [description] = (await lookup.describe?.(client, [row])) ?? []
    return [namesOf(lookup, row), description ?? '']
      .filter((part) => part !== '')
      .map(escapeToOneLine)
      .join(', ')
  }
  return undefined
}

/** Matches of the most specific kind, and every name seen. */
type Found = { matches: Row[]; names: string[]; usual: string[] }

type Query = Record<string, unknown>

/**
 * The records that `word` names, by a name or by the beginning of their id. It is ambiguous when it does both: a machine
 * could take the beginning of another's id as its name.
 */
async function find(
  client: Client,
  entry: Endpoint,
  query: Query,
  lookup: Lookup,
  word: string,
): Promise<Found> {
  const beginning = idBeginningOf(word)
  const named = beginning?.isCut
    ? { matches: [], names: [], usual: [] }
    : await findByName(client, entry, { ...lookup.narrow?.(word), ...query }, lookup, word)
  if (!beginning) return named
  const { start } = beginning
  const begun: Row[] = []
  // A list that names are searched in may be long: the service finds ids as well.
  const ofIds = lookup.narrow ? { ...query, idPrefix: start } : query
  for await (const row of fetchAllRows(client, entry, ofIds) as AsyncIterable<Row>) {
    if (row.id.startsWith(start)) begun.push(row)
    if (begun.length > maxCandidates) break
  }
  return { ...named, matches: distinct([...named.matches, ...begun]) }
}

async function findByName(
  client: Client,
  entry: Endpoint,
  query: Query,
  lookup: Lookup,
  word: string,
): Promise<Found> {
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
    matches: distinct(best),
    names: [...names],
    usual: [...usual],
  }
}

/** The organization, else the partner, that a record is in. */
function tenantOf({ orgId, partnerId }: Row): { kind: 'organization' | 'partner'; id: string } | undefined {
  if (typeof orgId === 'string') return { kind: 'organization', id: orgId }
  return typeof partnerId === 'string' ? { kind: 'partner', id: partnerId } : undefined
}

/** What the tenants of these records are called, as far as the caller may know. */
async function tenantNames(client: Client, rows: readonly Row[]): Promise<Map<string, string>> {
  const { orgs, partners } = await tenancy()
  const tenants = new Map(rows.flatMap((row) => tenantOf(row) ?? []).map(({ id, kind }) => [id, kind]))
  const named = await Promise.all(
    [...tenants].map(async ([id, kind]): Promise<[string, string][]> => {
      const entry = kind === 'organization' ? orgs.show : partners.show
      // Who may not read a tenant sees its id.
      const tenant = await client.call(entry, { params: { id } }).catch(() => undefined)
      return tenant === undefined ? [] : [[id, tenant.name]]
    }),
  )
  return new Map(named.flat())
}

const distinct = (rows: Row[]): Row[] => [...new Map(rows.map((row) => [row.id, row])).values()]

const namesOf = ({ names }: Lookup, row: Row): string =>
  names
    .map((key) => row[key])
    .filter(Boolean)
    .join(', ')

const plural = (noun: string): string => (noun.endsWith('y') ? `${noun.slice(0, -1)}ies` : `${noun}s`)

/** Candidates that an error lists. */
const maxCandidates = 20

async function ambiguous(
  client: Client,
  resource: Resource,
  word: string,
  matches: readonly Row[],
): Promise<CliError> {
  const lookup = lookups[resource]
  const some = matches.slice(0, maxCandidates)
  const [descriptions = [], tenants] = await Promise.all([
    lookup?.describe?.(client, some),
    tenantNames(client, some),
  ])
  const lines = some.map((row, at) => {
    const name = lookup ? namesOf(lookup, row) : ''
    const tenant = tenantOf(row)
    const where = tenant ? `(in ${tenants.get(tenant.id) ?? tenant.id})` : ''
    const parts = [row.id, name, where, descriptions[at] ?? '']
    return `  ${parts
      .filter((part) => part !== '')
      .map(escapeToOneLine)
      .join('  ')}`
  })
  const rest = matches.length > maxCandidates ? [`  and ${matches.length - maxCandidates} more`] : []
  const text = `"${word}" ${idBeginningOf(word) ? 'could mean' : 'is the name of'} ${matches.length} ${plural(resourceNames[resource])}:\n${[...lines, ...rest].join('\n')}`
  return new CliError(text, {
    exit: exitCodes.usage,
    code: 'ambiguous',
    hint: 'use the id or its beginning, or narrow the search with --org',
  })
}
