import { auditReports } from '../../src/audit/reports/contract.ts'
import { resolveAuditOrg } from '../../src/cli/audit-org.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import { usageError } from '../../src/cli/exit-codes.ts'
import { fieldsOf } from '../../src/cli/fields.ts'
import { type FlagSet, fieldFlag, textArg, textFlag } from '../../src/cli/flags.ts'
import { runRecordCommand } from '../../src/cli/record-command.ts'
import { didYouMean } from '../../src/core/suggest.ts'

const { stats: _, ...reports } = auditReports
const kinds = Object.keys(reports) as (keyof typeof reports)[]
const span = fieldsOf(reports.users).filter(({ key }) => key !== 'orgId')

export default class AuditReport extends ApiCommand {
  static override endpoints = [
    'GET /overview',
    'GET /audit-logs/stats',
    'GET /audit-logs/reports/user-activity',
    'GET /audit-logs/reports/security-events',
    'GET /audit-logs/reports/compliance',
  ]
  static override summary = 'Report on users, security events or compliance events, over every entry'
  static override description =
    '--html writes a page with charts, for people who read it in a browser or on paper: of one report, or of all without a name. It is one file that loads nothing from elsewhere.'
  static override examples = [
    'svc audit report security --org blue-bakery --jq "{loginAttempts, failedLogins}"\n{"loginAttempts":812,"failedLogins":9}',
    'svc audit report users --since 2026-01-01T00:00:00Z',
    'svc audit report compliance --json',
    'svc audit report --org blue-bakery --since 2026-01-01 --html january.html',
  ]
  static override args = { kind: textArg(`The report: ${kinds.join(', ')}`, false) }
  static override flags: FlagSet = {
    ...Object.fromEntries(span.map((field) => [field.flag, fieldFlag(field)])),
    html: textFlag('Write a page with charts to this new file; - for standard output', 'FILE'),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AuditReport)
    const kind = kinds.find((one) => one === args.kind)
    if (!kind && args.kind !== undefined) {
      const named = String(args.kind)
      throw usageError(`"${named}" is not a report: ${kinds.join(', ')}`, didYouMean(named, [...kinds]))
    }
    const session = this.open(flags)
    const said = flags as Record<string, unknown>
    const html = flags.html as string | undefined
    const times = Object.fromEntries(span.map(({ key, flag }) => [key, said[flag]]))
    if (html !== undefined) {
      const { writeReportPage } = await import('../../src/cli/audit-report/write.ts')
      const { from, to } = times as { from?: string; to?: string }
      return writeReportPage(session, { file: html, kind, from, to })
    }
    if (!kind) throw usageError('Missing KIND', kinds.join(', '))
    const input = async () => {
      return { query: { ...times, orgId: await resolveAuditOrg(session) } }
    }
    await runRecordCommand(session, reports[kind], { examples: [] }, input, {
      flags: said,
      args,
      id: this.id ?? '',
    })
  }
}
