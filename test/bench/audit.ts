import { auditIngest } from './audit-ingest.ts'
import { auditOrganizations } from './audit-organizations.ts'
import { auditSealing } from './audit-sealing.ts'
import { auditVerify } from './audit-verify.ts'
import type { Row } from './figures.ts'

export type AuditOptions = {
  quick: boolean
  /** Of Postgres. */
  newDatabase: () => Promise<string>
}

/** What is measured of the audit log and of logs, one after the other. */
export const parts: readonly ((options: AuditOptions, say: (line: string) => void) => Promise<Row[]>)[] = [
  auditVerify,
  auditSealing,
  auditIngest,
  auditOrganizations,
]
