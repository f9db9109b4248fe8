import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import type { auditLogs } from '../audit/contract.ts'
import { auditExports } from '../audit/exports/contract.ts'
import { orgOf } from './audit.ts'
import type { Session } from './base.ts'
import { usage } from './exit.ts'
import { type Field, fieldsOf } from './fields.ts'
import { type FlagSet, flagFor } from './flags.ts'
import { say, write } from './print.ts'
import { bar, grouped } from './progress.ts'

type Flags = Record<string, unknown>

const { download } = auditExports

/** Said by --org and --columns, which every command has. */
const saidElsewhere = ['orgId', 'columns']

const fields = fieldsOf(download).filter(({ key }) => !saidElsewhere.includes(key))

/** What a readable export takes: the filters of the lists. They mean nothing for a chain, which is whole. */
export const exportFlags: FlagSet = Object.fromEntries(
  fields.map((field) => [
    field.flag,
    field.key === 'format'
      ? { ...flagFor(field), description: 'Entries to read, as filtered, instead of the chain' }
      : { ...flagFor(field), dependsOn: ['format'] },
  ]),
)

/** The entries that the filters find, as a file to read; at most 10,000 at a time. */
export async function exportEntries(run: Session, flags: Flags, outFile: string | undefined): Promise<void> {
  const said = fields.map(({ key, flag }: Field) => [key, flags[flag]] as const)
  const query = { ...Object.fromEntries(said), orgId: await orgOf(run), columns: run.output.columns }
  let headers: Record<string, string | undefined> = {}
  const stream = run.client.stream(download, { query }, (told) => {
    headers = told
  })
  await pour(stream, outFile)
  tell(Number(headers['x-total-count'] ?? 0), outFile)
  const next = headers['x-next-cursor']
  if (next !== undefined) say(`There are more: the same with --cursor ${next} goes on`)
}

const lineBreak = 0x0a

/** Header and trailer are lines too. */
const framing = 2

/** The chain of an organization as it is verified. */
export async function exportChain(
  run: Session,
  { chain }: typeof auditLogs,
  outFile: string | undefined,
): Promise<void> {
  const query = { orgId: await orgOf(run) }
  const progress = bar('Exporting', 'entries')
  let lines = 0
  const entries = () => Math.max(0, lines - framing)
  try {
    await pour(run.client.stream(chain, { query }), outFile, (chunk) => {
      for (let at = chunk.indexOf(lineBreak); at !== -1; at = chunk.indexOf(lineBreak, at + 1)) lines += 1
      progress.done(entries())
    })
  } finally {
    progress.end()
  }
  tell(entries(), outFile)
}

const tell = (entries: number, outFile: string | undefined): void =>
  say(`${grouped(entries)} entries written${outFile === undefined ? '' : ` to ${outFile}`}`)

/** Into a new private file, or to standard output. A file that did not become whole does not stay. */
async function pour(
  stream: AsyncIterable<Buffer>,
  outFile: string | undefined,
  seen: (chunk: Buffer) => void = () => {},
): Promise<void> {
  const target = outFile === undefined ? undefined : newFile(outFile)
  let whole = false
  try {
    for await (const chunk of stream) {
      seen(chunk)
      if (target === undefined) await write(chunk)
      else for (let from = 0; from < chunk.length; ) from += writeSync(target, chunk, from)
    }
    whole = true
  } finally {
    if (target !== undefined) {
      closeSync(target)
      if (!whole) rmSync(outFile!, { force: true })
    }
  }
}

function newFile(path: string): number {
  try {
    return openSync(path, 'wx', 0o600)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw usage(
      code === 'EEXIST' ? `${path} exists and is not overwritten` : `Cannot create ${path}: ${message}`,
    )
  }
}
