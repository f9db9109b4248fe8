import { ApiError } from '../core/client.ts'
import { safeParse } from '../core/schema.ts'
import { NewOrganization, orgs } from '../tenancy/contract.ts'
import { readStdin, readTextFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import { selectColumns } from './columns.ts'
import { exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { fetchAllRows } from './pages.ts'
import { printNote, rowPrinter } from './print.ts'
import { retryWhenLimited } from './rate-limit.ts'
import { resolveId } from './resolve.ts'
import { escapeToOneLine } from './table.ts'
import { parseRecords, slugify } from './tabular.ts'

type ImportRow = { partner: string | undefined; body: Record<string, unknown> }
type Result = {
  row: number
  result: 'created' | 'exists' | 'failed' | 'would be created'
  name: string
  slug: string
  id: string | null
  error: string | null
}

type Options = {
  /** For rows without a partner. */
  partner: string | undefined
  /** An existing organization counts as success. */
  existing: boolean
  dry: boolean
}

/** Creates an organization for every row of a file; fails unless all of them exist in the end. */
export async function importOrgs(session: CommandContext, file: string, options: Options): Promise<void> {
  const { client, output } = session
  const text = file === '-' ? await readStdin('organizations') : readTextFile(file, 'organizations')
  const rows = parseRows(await parseRecords(text), options.partner)
  const columns = selectColumns(output, ['row', 'result', 'name', 'slug', 'id', 'error'])
  const partnerIds = new Map<string, string>()
  for (const { partner } of rows) {
    if (partner === undefined || partnerIds.has(partner)) continue
    partnerIds.set(partner, await resolveId(client, 'partner', partner))
  }
  const bodies = rows.map(({ partner, body }) =>
    partner === undefined ? body : { ...body, partnerId: partnerIds.get(partner) },
  )
  const known = options.existing ? await idsBySlug(session) : undefined
  const printer = rowPrinter(output, columns)
  // On a terminal the line for each row is complete.
  const printed = output.format !== 'plain' || output.columns !== undefined || !process.stdout.isTTY
  const counts = new Map<Result['result'], number>()
  try {
    for (const [at, body] of bodies.entries()) {
      const done = await importOne(session, body, known, options)
      const { name, slug } = body as { name: string; slug: string }
      const result: Result = { row: at + 1, ...done, name, slug }
      counts.set(done.result, (counts.get(done.result) ?? 0) + 1)
      const why = done.error === null ? '' : `: ${escapeToOneLine(done.error)}`
      printNote(`${at + 1}/${bodies.length} ${done.result} ${escapeToOneLine(slug)}${why}`)
      if (printed) await printer.rows([result])
    }
  } finally {
    // Created rows are also reported when the rest failed.
    if (printed && counts.size > 0) await printer.end()
    if (counts.size > 0) printNote([...counts].map(([result, count]) => `${count} ${result}`).join(', '))
  }
  if (options.dry) printNote('Dry run: nothing was sent')
  if (counts.has('failed')) throw new SilentExit(exitCodes.failure)
}

/** The request of every row. @throws usage, with all faults */
function parseRows(records: Record<string, unknown>[], partner: string | undefined): ImportRow[] {
  if (records.length === 0) throw usageError('There is no row to import')
  const faults: string[] = []
  const seen = new Map<string, number>()
  const rows = records.map((record, at) => {
    const { partner: named = record.partnerId ?? partner, partnerId: _, ...rest } = record
    const body = rest.slug === undefined ? { ...rest, slug: slugify(String(rest.name ?? '')) } : rest
    if (named !== undefined && typeof named !== 'string')
      faults.push(`row ${at + 1}: partner is not a string`)
    const parsed = safeParse(NewOrganization, body)
    for (const issue of parsed.error?.issues ?? []) {
      const keys = issue.code === 'unrecognized_keys' ? issue.keys : [issue.path.join('.')]
      const missing = issue.code === 'invalid_type' && issue.input === undefined
      const message =
        issue.code === 'unrecognized_keys' ? 'is not a known field' : missing ? 'is missing' : issue.message
      for (const key of keys) faults.push(`row ${at + 1}: ${key} ${message}`)
    }
    // A slug is unique in a partner.
    const key = `${String(named)} ${String(body.slug)}`
    const first = seen.get(key)
    if (first === undefined) seen.set(key, at + 1)
    else faults.push(`row ${at + 1}: slug ${String(body.slug)} is that of row ${first}`)
    return { partner: named as string | undefined, body }
  })
  throwFaults(faults)
  return rows
}

function throwFaults(faults: string[]): void {
  if (faults.length === 0) return
  const shown = faults.slice(0, 20)
  const rest = faults.length > shown.length ? [`and ${faults.length - shown.length} more`] : []
  throw usageError(['Nothing was imported:', ...shown, ...rest].join('\n  '))
}

type Known = Map<string, string>
const keyOf = ({ partnerId, slug }: Record<string, unknown>): string => `${String(partnerId)} ${String(slug)}`

/** Ids by slug, within a partner and, where there is only one, without. */
async function idsBySlug({ client }: CommandContext): Promise<Known> {
  const rows: { id: string; partnerId: string; slug: string }[] = []
  for await (const row of fetchAllRows(client, orgs.list)) rows.push(row as (typeof rows)[number])
  const known: Known = new Map(rows.map((org) => [keyOf(org), org.id]))
  if (new Set(rows.map(({ partnerId }) => partnerId)).size > 1) return known
  for (const { id, slug } of rows) known.set(keyOf({ slug }), id)
  return known
}

async function importOne(
  session: CommandContext,
  body: Record<string, unknown>,
  known: Known | undefined,
  { dry, existing }: Options,
): Promise<Pick<Result, 'result' | 'id' | 'error'>> {
  const id = known?.get(keyOf(body))
  if (id !== undefined) return { result: 'exists', id, error: null }
  if (dry) return { result: 'would be created', id: null, error: null }
  try {
    const made = (await retryWhenLimited(() => session.client.request(orgs.create, { body }))) as {
      id: string
    }
    return { result: 'created', id: made.id, error: null }
  } catch (error) {
    // Without an answer, or without a sign-in, later rows would fail as well.
    if (!(error instanceof ApiError) || error.status === 401 || error.status >= 500) throw error
    // Somebody else created it first.
    const raced =
      existing && error.code === 'slug_taken' ? (await idsBySlug(session)).get(keyOf(body)) : undefined
    if (raced !== undefined) return { result: 'exists', id: raced, error: null }
    return { result: 'failed', id: null, error: error.message }
  }
}
