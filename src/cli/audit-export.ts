import type { auditLogs } from '../audit/contract.ts'
import { auditExports } from '../audit/exports/contract.ts'
import { resolveAuditOrg } from './audit-org.ts'
import type { CommandContext } from './base.ts'
import { type Field, fieldsOf } from './fields.ts'
import { type FlagSet, fieldFlag } from './flags.ts'
import { openNewFile } from './new-file.ts'
import { printNote, writeStdout } from './print.ts'
import { formatEntries, progressBar } from './progress.ts'

type Flags = Record<string, unknown>

const { download } = auditExports

/** Covered by --org and --columns, which every command has. */
const excludedFields = ['orgId', 'columns']

const fields = fieldsOf(download).filter(({ key }) => !excludedFields.includes(key))

/** Flags of an export of entries: the filters of the lists. A chain is always exported completely. */
export const exportFlags: FlagSet = Object.fromEntries(
  fields.map((field) => [
    field.flag,
    field.key === 'format'
      ? { ...fieldFlag(field), description: 'Entries to read, as filtered, instead of the chain' }
      : { ...fieldFlag(field), dependsOn: ['format'] },
  ]),
)

/** The entries that match the filters, as a readable file; at most 10,000 at a time. */
export async function exportEntries(
  run: CommandContext,
  flags: Flags,
  outFile: string | undefined,
): Promise<void> {
  const said = fields.map(({ key, flag }: Field) => [key, flags[flag]] as const)
  const query = {
    ...Object.fromEntries(said),
    orgId: await resolveAuditOrg(run),
    columns: run.output.columns,
  }
  let headers: Record<string, string | undefined> = {}
  const stream = run.client.stream(download, { query }, (received) => {
    headers = received
  })
  await writeStream(stream, outFile)
  reportWritten(Number(headers['x-total-count'] ?? 0), outFile)
  const next = headers['x-next-cursor']
  if (next !== undefined) printNote(`There are more entries: repeat the command with --cursor ${next}`)
}

const lineBreak = 0x0a

/** Header and trailer are lines too. */
const framing = 2

/** The chain of an organization, in the format of `svc audit verify`. */
export async function exportChain(
  run: CommandContext,
  { chain }: typeof auditLogs,
  outFile: string | undefined,
): Promise<void> {
  const query = { orgId: await resolveAuditOrg(run) }
  const progress = progressBar('Exporting', 'entries')
  let lines = 0
  const entries = () => Math.max(0, lines - framing)
  try {
    await writeStream(run.client.stream(chain, { query }), outFile, (chunk) => {
      for (let at = chunk.indexOf(lineBreak); at !== -1; at = chunk.indexOf(lineBreak, at + 1)) lines += 1
      progress.done(entries())
    })
  } finally {
    progress.end()
  }
  reportWritten(entries(), outFile)
}

const reportWritten = (entries: number, outFile: string | undefined): void =>
  printNote(`${formatEntries(entries)} written${outFile === undefined ? '' : ` to ${outFile}`}`)

/** Into a new private file, or to standard output. */
async function writeStream(
  stream: AsyncIterable<Buffer>,
  outFile: string | undefined,
  seen: (chunk: Buffer) => void = () => {},
): Promise<void> {
  const file = outFile === undefined ? undefined : openNewFile(outFile)
  try {
    for await (const chunk of stream) {
      seen(chunk)
      if (file) file.write(chunk)
      else await writeStdout(chunk)
    }
    file?.keep()
  } finally {
    file?.end()
  }
}
