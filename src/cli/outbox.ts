import { selectColumns } from './columns.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { type Output, printRecord, rowPrinter } from './print.ts'

/** A file of the development outbox. */
export type OutboxEntry = {
  id: string
  at: string
  to: string
  kind: string
  subject: string
  text: string
  html: string
  links: string[]
}

export type OutboxFilter = { to?: string | undefined; kind?: string | undefined }

const fields = ['id', 'at', 'to', 'kind', 'subject', 'link', 'links', 'text', 'html']
const usual = ['at', 'to', 'kind', 'subject', 'link']

/** Newest first. */
export async function printMessages(
  output: Output,
  all: readonly OutboxEntry[],
  wanted: OutboxFilter,
): Promise<void> {
  const columns = selectColumns(output, fields, output.format === 'csv' ? fields : usual)
  const printer = rowPrinter(output, columns)
  await printer.rows(matching(all, wanted).map(withLink))
  await printer.end()
}

/** The newest, as its recipient reads it. */
export async function printLatest(
  output: Output,
  all: readonly OutboxEntry[],
  wanted: OutboxFilter,
): Promise<void> {
  const [latest] = matching(all, wanted)
  if (!latest) {
    const none = 'There is no such message in the outbox'
    throw new CliError(none, { exit: exitCodes.notFound, code: 'not_found' })
  }
  await printRecord(output, withLink(latest), undefined, async () => {
    const { escapeToOneLine: printable } = await import('./table.ts')
    const { at, to, subject, text } = latest
    const head = [`To: ${to}`, `At: ${at}`, `Subject: ${subject}`].map(printable)
    return `${[...head, '', ...text.trimEnd().split('\n').map(printable)].join('\n')}\n`
  })
}

const matching = (all: readonly OutboxEntry[], { to, kind }: OutboxFilter): OutboxEntry[] =>
  all.filter(
    (one) =>
      (to === undefined || one.to.toLowerCase() === to.toLowerCase()) &&
      (kind === undefined || one.kind === kind),
  )

/** Scripts need the link. */
const withLink = (message: OutboxEntry) => ({ ...message, link: message.links[0] ?? null })
