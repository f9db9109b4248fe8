import { type Compilable, sql } from 'kysely'
import { prepared } from '../../src/storage/dialect.ts'
import type { Storage } from '../../src/storage/open.ts'

/** The rows of every table as JSON, sorted. */
export type Dump = Map<string, string[]>

/** What happens beside the requests: sealing and signing, letters and events going out, and the sessions of the callers themselves. */
const letters = ['mails', 'password_reset_requests', 'password_resets', 'registrations']
const signing = ['audit_tiles', 'audit_checkpoints', 'audit_verdicts']
const deliveries = ['events', 'webhook_counts', 'webhook_deliveries', 'webhook_queues', 'webhook_workers']
const beside = ['outbox', 'audit_heads', 'audit_logs', ...signing, ...letters, ...deliveries, 'sessions']
/** Of agents that are connected just now. */
const passing = ['agent_links', 'live_questions']
const apart = ['svc_migrations', ...beside, ...passing]

type Row = { place: string; row: string }
const questions = new Map<string, ReturnType<typeof asking>>()
const asked = new WeakMap<Storage, Promise<string>>()

/** Postgres keeps the plan, which takes it longer to make than to run. */
const asking = (question: string) =>
  prepared(
    (db, _: Record<never, string>): Compilable<Row> => ({
      compile: () => sql.raw<Row>(question).compile(db),
    }),
  )

/** Everything that is stored, but for the audit log and sessions. */
export async function dump(storage: Storage): Promise<Dump> {
  if (!asked.has(storage)) asked.set(storage, questionOf(storage))
  const question = (await asked.get(storage))!
  if (!questions.has(question)) questions.set(question, asking(question))
  const all: Dump = new Map()
  for (const { place, row } of await questions.get(question)!(storage.read, {})) {
    const texts = all.get(place)
    if (texts) texts.push(row)
    else all.set(place, [row])
  }
  for (const texts of all.values()) texts.sort()
  return all
}

/** One statement that reads every table, since it is asked very often. */
async function questionOf({ dialect, read }: Storage): Promise<string> {
  const tables = (await read.introspection.getTables()).filter(
    ({ name }) => !apart.includes(name) && !/_trigrams/.test(name),
  )
  const parts = tables.map(({ name, columns }) => {
    const fields = columns.map((column) => `'${column.name}', "${column.name}"`).join(', ')
    const row = dialect === 'sqlite' ? `json_object(${fields})` : `row_to_json("${name}")::text`
    return `select '${name}' as place, ${row} as row from "${name}"`
  })
  return parts.join(' union all ')
}

/** Rows that came, went or changed, by table. */
export function changed(before: Dump, after: Dump): string[] {
  const tables = new Set([...before.keys(), ...after.keys()])
  return [...tables].flatMap((table) => {
    const [was, is] = [before.get(table) ?? [], after.get(table) ?? []]
    const [old, fresh] = [new Set(was), new Set(is)]
    return [
      ...is.filter((row) => !old.has(row)).map((row) => `${table} + ${row}`),
      ...was.filter((row) => !fresh.has(row)).map((row) => `${table} - ${row}`),
    ]
  })
}

/** Only the rows that say one of these texts. */
export function about(all: Dump, texts: readonly string[]): Dump {
  const mentions = (row: string) => texts.some((text) => row.includes(text))
  return new Map([...all].map(([table, rows]) => [table, rows.filter(mentions)]))
}
