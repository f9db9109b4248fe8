import { auditReports } from '../../audit/reports/contract.ts'
import { ApiError, type Client } from '../../core/client.ts'
import { type Overview, overview } from '../../overview/contract.ts'
import { resolveAuditOrg } from '../audit-org.ts'
import type { CommandContext } from '../base.ts'
import { usageError } from '../exit-codes.ts'
import { openNewFile } from '../new-file.ts'
import { printNote, writeStdout } from '../print.ts'
import { withSpinner } from '../progress.ts'

type ReportKind = Exclude<keyof typeof auditReports, 'stats'>

type Asked = { file: string; kind: ReportKind | undefined; from: string | undefined; to: string | undefined }

/** Writes a report, or all of them, as a page into a new private file. */
export async function writeReportPage(session: CommandContext, asked: Asked): Promise<void> {
  const { output } = session
  if (output.format !== 'plain' || output.columns !== undefined)
    throw usageError('--html is a format of its own, without other output flags')
  if (asked.file === '-') return writeStdout(await makePage(session, asked))
  const file = openNewFile(asked.file)
  try {
    file.write(await makePage(session, asked))
    file.keep()
  } finally {
    file.end()
  }
  printNote(`Written to ${asked.file}: open it in a browser`)
}

async function makePage(session: CommandContext, { kind, from, to }: Asked): Promise<string> {
  const { client, settings } = session
  const orgId = await resolveAuditOrg(session)
  const input = { query: { orgId, from, to } }
  const read = async () => {
    return {
      audit: await readLog(client, orgId),
      ...(!kind && { stats: await client.call(auditReports.stats, input) }),
      ...((!kind || kind === 'users') && { users: await client.call(auditReports.users, input) }),
      ...((!kind || kind === 'security') && { security: await client.call(auditReports.security, input) }),
      ...((!kind || kind === 'compliance') && {
        compliance: await client.call(auditReports.compliance, input),
      }),
    }
  }
  const found = await withSpinner('Waiting for the service', read())
  const { reportPage } = await import('./page.ts')
  const madeAt = new Date().toISOString()
  return reportPage({ ...found, url: client.url, org: settings.org.value, from, to, madeAt })
}

/** The state of the chains; null for an organization that was deleted, whose history is still reported. */
async function readLog(client: Client, orgId: string | undefined): Promise<Overview['audit']> {
  try {
    return (await client.call(overview.show, { query: { orgId } })).audit
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null
    throw error
  }
}
