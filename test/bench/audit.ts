import { auditVerify } from './audit-verify.ts'
import type { Row } from './figures.ts'

export type AuditOptions = { quick: boolean }

/** What is measured of the audit log and of logs, one after the other. */
export const parts: readonly ((options: AuditOptions, say: (line: string) => void) => Promise<Row[]>)[] = [
  auditVerify,
]
