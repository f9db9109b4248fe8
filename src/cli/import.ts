import { ApiError } from '../core/client.ts'
import { readStdin, readTextFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import { selectColumns } from './columns.ts'
import { exitCodes, SilentExit } from './exit-codes.ts'
import { type ImportKind, type Known, keyOf } from './import-kinds.ts'
import { readRows } from './import-rows.ts'
import { printNote, rowPrinter } from './print.ts'
import { progressBar } from './progress.ts'
import { escapeToOneLine } from './table.ts'
import { parseRecords } from './tabular.ts'

type JsonObject = Record<string, unknown>
type Result = {
  row: number
  result: 'created' | 'exists' | 'failed' | 'would be created'
  id: string | null
  error: string | null
}

type Options = {
  /** For columns that a row leaves out. */
  defaults: JsonObject
  /** An existing record counts as success. */
  existing: boolean
  dry: boolean
}

/** Creates a record for every row of a file; fails unless all of them exist in the end. */
export async function importFile(
  session: CommandContext,
  kind: ImportKind,
  file: string,
  options: Options,
): Promise<void> {
  const { output } = session
  const text = file === '-' ? await readStdin(kind.what) : readTextFile(file, kind.what)
  const bodies = await readRows(session, kind, await parseRecords(text), options.defaults)
  const shown = [...new Set(['name', kind.key.at(-1)!])]
  const columns = selectColumns(output, ['row', 'result', ...shown, 'id', 'error'])
  const known = options.existing ? await kind.known(session, bodies) : undefined
  const printer = rowPrinter(output, columns)
  const bar = progressBar('Importing', kind.what, bodies.length)
  const counts = new Map<Result['result'], number>()
  const leftToDo = new Set<string>()
  try {
    for (const [at, body] of bodies.entries()) {
      const { made, ...done } = await importOne(session, kind, body, known, options)
      const left = made && kind.leftToDo?.(made)
      if (left !== undefined) leftToDo.add(left)
      const said = Object.fromEntries(shown.map((field) => [field, body[field]]))
      const result: Result = { row: at + 1, ...done, ...said }
      counts.set(done.result, (counts.get(done.result) ?? 0) + 1)
      bar.done(at + 1)
      const named = escapeToOneLine(String(said[kind.key.at(-1)!]))
      if (done.error !== null) printNote(`row ${at + 1}, ${named}: ${done.error}`)
      await printer.rows([result])
    }
  } finally {
    bar.end()
    // Created rows are also reported when the rest failed.
    if (counts.size > 0) await printer.end()
    if (counts.size > 0) printNote([...counts].map(([result, count]) => `${count} ${result}`).join(', '))
    for (const left of leftToDo) printNote(left)
  }
  if (options.dry) printNote('Dry run: nothing was sent')
  if (counts.has('failed')) throw new SilentExit(exitCodes.failure)
}

async function importOne(
  session: CommandContext,
  kind: ImportKind,
  body: JsonObject,
  known: Known | undefined,
  { dry, existing }: Options,
): Promise<Pick<Result, 'result' | 'id' | 'error'> & { made?: JsonObject }> {
  const id = known?.get(keyOf(kind, body))
  if (id !== undefined) return { result: 'exists', id, error: null }
  if (dry) return { result: 'would be created', id: null, error: null }
  try {
    const made = (await session.client.request(kind.create, { body })) as JsonObject & { id: string }
    return { result: 'created', id: made.id, error: null, made }
  } catch (error) {
    // Without an answer, or without a sign-in, later rows would fail as well.
    if (!(error instanceof ApiError) || error.status === 401 || error.status >= 500) throw error
    // Somebody else created it first.
    const raced =
      existing && error.code === kind.taken
        ? (await kind.known(session, [body])).get(keyOf(kind, body))
        : undefined
    if (raced !== undefined) return { result: 'exists', id: raced, error: null }
    return { result: 'failed', id: null, error: error.message }
  }
}
