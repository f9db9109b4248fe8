import { type Compilable, type Kysely, sql } from 'kysely'
import type { Storage } from '../../src/storage/open.ts'
import { prepared } from '../../src/storage/query/prepared.ts'

/** The rows of every table as JSON, sorted. */
export type Dump = Map<string, string[]>

/** Tables written in the background: readiness, sealing and signing, outgoing mails and events. */
const readiness = ['probes', 'service_processes']
const mailTables = ['mails', 'password_reset_requests', 'password_resets', 'registrations']
const signing = [
  'audit_tiles',
  'audit_checkpoints',
  'audit_checkpoint_claims',
  'audit_verdicts',
  'audit_readings',
]
const deliveries = ['events', 'webhook_counts', 'webhook_deliveries', 'webhook_queues', 'webhook_workers']
const beside = ['outbox', 'audit_heads', 'audit_logs', ...readiness, ...signing, ...mailTables, ...deliveries]
/** Tables of currently connected agents and running processes. */
const passing = ['agent_links', 'leases', 'live_questions']
/** Written each minute by whatever process evaluates the group. */
const evaluation = 'device_groups.evaluated_at'
const apart = ['svc_migrations', ...beside, ...passing]
/** Tables of the callers' accounts, which every sign-in changes. */
const callers = ['sessions', 'sign_in_marks']

type Row = { place: string; row: string }
const questions = new Map<string, ReturnType<typeof asking>>()
const asked = {
  true: new WeakMap<Storage, Promise<string>>(),
  false: new WeakMap<Storage, Promise<string>>(),
}

/** A prepared statement, as Postgres takes longer to plan than to run it. */
const asking = (question: string) =>
  prepared(
    (db, _: Record<never, string>): Compilable<Row> => ({
      compile: () => sql.raw<Row>(question).compile(db),
    }),
  )

/** All stored rows, except for the audit log, and unless requested, what signing in changes. */
export async function dump(storage: Storage, { sessions = false } = {}): Promise<Dump> {
  const known = asked[`${sessions}`]
  if (!known.has(storage)) known.set(storage, questionOf(storage, sessions))
  const question = (await known.get(storage))!
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

/** One statement that reads every table, as it runs very often. */
async function questionOf({ dialect, read }: Storage, sessions: boolean): Promise<string> {
  const tables = (await read.introspection.getTables()).filter(
    ({ name }) => !apart.includes(name) && !/_trigrams/.test(name) && (sessions || !callers.includes(name)),
  )
  const parts = tables.map(({ name, columns }) => {
    const names = columns.map((column) => column.name).filter((column) => `${name}.${column}` !== evaluation)
    const row =
      dialect === 'sqlite'
        ? `json_object(${names.map((column) => `'${column}', "${column}"`).join(', ')})`
        : 'row_to_json(one)::text'
    const from = `(select ${names.map((column) => `"${column}"`).join(', ')} from "${name}") one`
    return `select '${name}' as place, ${row} as row from ${from}`
  })
  return parts.join(' union all ')
}

/** Added, removed and changed rows, by table. */
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

/** Only the rows that contain one of these texts. */
export function about(all: Dump, texts: readonly string[]): Dump {
  const mentions = (row: string) => texts.some((text) => row.includes(text))
  return new Map([...all].map(([table, rows]) => [table, rows.filter(mentions)]))
}

type AnyRow = Record<string, unknown>

/**
 * Restores added, removed and changed rows, row by row, without deleting rows by cascade that
 * have not changed.
 */
export async function restore({ dialect, write }: Storage, before: Dump, after: Dump): Promise<void> {
  const later =
    dialect === 'sqlite'
      ? sql`pragma defer_foreign_keys = on`
      : sql`set local session_replication_role = replica`
  await write(async (tx) => {
    await later.execute(tx)
    const db = tx as unknown as Kysely<Record<string, AnyRow>>
    for (const table of new Set([...before.keys(), ...after.keys()])) {
      const [was, is] = [new Set(before.get(table)), new Set(after.get(table))]
      const only = (these: Set<string>, those: Set<string>) =>
        [...these].filter((row) => !those.has(row)).map((row) => JSON.parse(row) as AnyRow)
      const [gone, come] = [only(was, is), only(is, was)]
      const isOne = (a: AnyRow, b: AnyRow) => a.id !== undefined && a.id === b.id
      for (const row of come) {
        const old = gone.find((one) => isOne(one, row))
        const names = row.id === undefined ? Object.keys(row) : ['id']
        const where = sql.join(
          names.map(
            (name) => sql`${sql.ref(name)} ${row[name] === null ? sql`is null` : sql`= ${row[name]}`}`,
          ),
          sql` and `,
        )
        const values = old && Object.entries(old).map(([name, value]) => sql`${sql.ref(name)} = ${value}`)
        const statement = values
          ? sql`update ${sql.table(table)} set ${sql.join(values)} where ${where}`
          : sql`delete from ${sql.table(table)} where ${where}`
        await statement.execute(tx)
      }
      const lost = gone.filter((one) => !come.some((row) => isOne(one, row)))
      if (lost.length > 0) await db.insertInto(table).values(lost).execute()
    }
  })
}
