import { examine } from '../../../daemon/doctor/checks.ts'
import type { Finding } from '../../../src/core/finding.ts'
import { noLimits, testSecrets } from '../../harness.ts'
import { type Place, serviceEnv } from '../process.ts'

export type Env = Record<string, string | undefined>

/** What is found in an installation, without what is well. */
export async function findingsOf(
  { dataDir, databaseUrl }: Place,
  env: Env = {},
  offline = true,
): Promise<Finding[]> {
  // What the services of tests derive: a key that is not set would be a finding.
  const { AUDIT_SIGNING_KEY } = serviceEnv
  const settings = {
    ...testSecrets,
    AUDIT_SIGNING_KEY,
    ...noLimits,
    SMTP_URL: 'smtp://127.0.0.1:9',
    MAIL_FROM: 'a@example.com',
  }
  const found = await examine(
    {},
    { offline, env: { ...settings, SVC_DATA_DIR: dataDir, DATABASE_URL: databaseUrl, ...env } },
  )
  // That it was never backed up: test/daemon/backup/scheduled-runs.test.ts.
  return found.findings.filter(
    ({ state, check }) => state !== 'ok' && !/^(backup|restore drill)$/.test(check),
  )
}

export const summaryOf = (findings: Finding[]) =>
  findings.map(({ check, state, message }) => [check, state, message])
