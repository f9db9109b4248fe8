import { spawn } from 'node:child_process'
import type { Resource } from '../../core/schema.ts'
import { hasNoControls } from '../../core/terminal.ts'
import { authenticatedClient, credentialLocation, isFresh } from '../api-client.ts'
import { tokenSource } from '../ask.ts'
import { readSession } from '../credential-store.ts'
import { readCached } from '../files.ts'
import { callerOf, fileOfNames, keepNames } from '../name-cache.ts'
import { fetchPages } from '../pages.ts'
import { lookups, resolveId } from '../resolve.ts'
import { apiKeyFrom, type FlagSettings, resolveSettings, type Settings } from '../settings.ts'
import type { Candidate } from './candidates.ts'

/** A person who waits longer for a completion types the name instead. */
const budgetMs = 200
/** Without a person who waits. */
const backgroundMs = 10_000
/** Names are offered this long before they are fetched again. */
const freshMs = 60_000

type Names = { at: number; isWhole: boolean; names: Candidate[] }

/** What is completed. It holds no secret: the process in the background is given it as an argument. */
type Question = {
  resource: Resource
  /** The beginning that was typed. */
  current: string
  connection: FlagSettings
  version: string
}

/**
 * The names of records that begin with `current`, from the cache or within 200 ms from the service. Later answers are left to a
 * process in the background, for the next time. Without a sign-in, or when anything fails, there are none.
 */
export async function recordNames(question: Question): Promise<Candidate[]> {
  const settings = resolveSettings(question.connection)
  const caller = callerOf(settings, apiKeyFrom(question.connection))
  if (caller === undefined) return []
  const whole = fileOf(settings, caller, question.resource, '')
  const narrowed = fileOf(settings, caller, question.resource, question.current)
  const all = readCached<Names>(whole)
  const known = all?.isWhole ? all : readCached<Names>(narrowed)
  if (known && Date.now() - known.at < freshMs) return known.names
  const signal = AbortSignal.timeout(budgetMs)
  const late = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)))
  // An error message would stand in the middle of the command line.
  const fetched = await Promise.race([fetchNames(question, settings, 'now').catch(() => undefined), late])
  if (fetched) return fetched.names
  fetchInBackground(question)
  return known?.names ?? []
}

/** Fetches them for the next time: `recordNames` starts this in a process of its own. */
export async function refreshNames(question: Question): Promise<void> {
  const settings = resolveSettings({ ...question.connection, timeout: `${backgroundMs}ms` })
  await fetchNames(question, settings, 'in time')
}

/**
 * A session that has to be renewed is renewed in the background only: a process that ends after 200 ms could lose the new refresh
 * token, and with the old one all sessions of its family would be revoked.
 */
async function fetchNames(
  { resource, current, connection, version }: Question,
  settings: Settings,
  when: 'now' | 'in time',
): Promise<Names | undefined> {
  const lookup = lookups[resource]
  if (!lookup) return undefined
  const token = tokenSource(undefined)
  const apiKey = apiKeyFrom(connection)
  const options = { settings, version, interactive: false, token, apiKey, silent: true as const }
  if (when === 'now' && !token && apiKey === undefined) {
    const place = credentialLocation(settings, false)
    const session = place && (await readSession(place))
    if (!session || !isFresh(session)) return undefined
  }
  const client = authenticatedClient(options)
  const org = settings.org.value
  const orgId =
    // An unknown organization narrows nothing.
    lookup.byOrg && org ? await resolveId(client, 'organization', org).catch(() => undefined) : undefined
  const isNarrowed = current !== '' && lookup.narrow !== undefined
  const query = { ...(isNarrowed && lookup.narrow?.(current)), ...(orgId && { orgId }) }
  const caller = callerOf(settings, apiKey)
  for await (const { reply, rows } of fetchPages(client, await lookup.list(), { query }, { limit: 100 })) {
    const isWhole = !isNarrowed && (reply.pagination?.total ?? rows.length) <= rows.length
    const names = { at: Date.now(), isWhole, names: rows.flatMap((row) => candidateOf(row, lookup.names)) }
    if (caller !== undefined) keepNames(fileOf(settings, caller, resource, isNarrowed ? current : ''), names)
    return names
  }
  return undefined
}

/** The name that resolves most surely, and the next one as its description. A name with control characters is left out. */
function candidateOf(row: unknown, keys: readonly string[]): Candidate[] {
  const texts = keys
    .map((key) => (row as Record<string, unknown>)[key])
    .filter((text): text is string => typeof text === 'string' && text !== '')
  const [value, description] = texts
  if (value === undefined || !texts.every(hasNoControls) || value.startsWith('-') || value.startsWith(':'))
    return []
  return [{ value, ...(description !== undefined && description !== value && { description }) }]
}

const fileOf = (settings: Settings, caller: string, resource: Resource, current: string): string =>
  fileOfNames(settings, caller, settings.org.value ?? null, resource, current)

function fetchInBackground(question: Question): void {
  const args = [process.argv[1] ?? '', 'complete', 'refresh', '--', JSON.stringify(question)]
  spawn(process.execPath, args, { detached: true, stdio: 'ignore' })
    .on('error', () => {})
    .unref()
}
