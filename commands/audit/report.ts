import { auditReports } from '../../src/audit/reports/contract.ts'
import { resolveAuditOrg } from '../../src/cli/audit-org.ts'
import { ApiCommand } from '../../src/cli/base.ts'
import { usageError } from '../../src/cli/exit-codes.ts'
import { fieldsOf } from '../../src/cli/fields.ts'
import { type FlagSet, fieldFlag, textArg } from '../../src/cli/flags.ts'
import { runRecordCommand } from '../../src/cli/record-command.ts'
import { didYouMean } from '../../src/core/suggest.ts'

const { stats: _, ...reports } = auditReports
const kinds = Object.keys(reports) as (keyof typeof reports)[]
const span = fieldsOf(reports.users).filter(({ key }) => key !== 'orgId')

export default class AuditReport extends ApiCommand {
  static override summary = 'Report on users, security events or compliance events, over every entry'
  static override examples = [
    'svc audit report security --org blue-bakery --jq "{loginAttempts, failedLogins}"\n{"loginAttempts":812,"failedLogins":9}',
    'svc audit report users --from 2026-01-01T00:00:00Z',
    'svc audit report compliance --json',
  ]
  static override args = { kind: textArg(`The report: ${kinds.join(', ')}`) }
  static override flags: FlagSet = Object.fromEntries(span.map((field) => [field.flag, fieldFlag(field)]))

  async run(): Promise<void> {
    const { args, flags } = await this.parse(AuditReport)
    const kind = kinds.find((one) => one === args.kind)
    if (!kind) {
      const named = String(args.kind)
      throw usageError(`"${named}" is not a report: ${kinds.join(', ')}`, didYouMean(named, [...kinds]))
    }
    const session = this.open(flags)
    const said = flags as Record<string, unknown>
    const input = async () => {
      const { from, to } = said
      return { query: { orgId: await resolveAuditOrg(session), from, to } }
    }
    await runRecordCommand(session, reports[kind], { examples: [] }, input, {
      flags: said,
      args,
      id: this.id ?? '',
    })
  }
}
