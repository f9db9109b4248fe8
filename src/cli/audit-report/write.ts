import { existsSync, writeFileSync } from 'node:fs'
import { auditReports } from '../../audit/reports/contract.ts'
import { ApiError, type Client } from '../../core/client.ts'
import { type Overview, overview } from '../../overview/contract.ts'
import { resolveAuditOrg } from '../audit-org.ts'
import type { CommandContext } from '../base.ts'
import { CliError, usageError } from '../exit-codes.ts'
import { fileExists } from '../files.ts'
import { printNote, writeStdout } from '../print.ts'
import { withSpinner } from '../progress.ts'

type ReportKind = Exclude<keyof typeof auditReports, 'stats'>

type Asked = { file: string; kind: ReportKind | undefined; from: string | undefined; to: string | undefined }

/** Writes a report, or all of them, as a page into a new private file. */
export async function writeReportPage(
  session: CommandContext,
  { file, kind, from, to }: Asked,
): Promise<void> {
  const { client, output, settings } = session
  if (output.format !== 'plain' || output.columns !== undefined)
    throw usageError('--html is a format of its own, without other output flags')
  if (file !== '-' && existsSync(file)) throw fileExists(file)
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
  const page = reportPage({ ...found, url: client.url, org: settings.org.value, from, to, madeAt })
  if (file === '-') return writeStdout(page)
  try {
    // Who did what is nothing for other users of this machine.
    writeFileSync(file, page, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw fileExists(file)
    throw new CliError(`Cannot write ${file}: ${(error as Error).message}`, { cause: error })
  }
  printNote(`Written to ${file}: open it in a browser`)
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
