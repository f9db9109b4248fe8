import { type Finding, failed } from '../../src/core/finding.ts'
import { classifyDatabaseError } from '../../src/storage/database-errors.ts'

/** What `--fix` does about a finding. */
export type Repair = { plan: string; run(): Promise<unknown> }

/** For a database that is damaged. */
export const restoreIt =
  'stop the service, keep a copy of the damaged files, and restore the database from a backup'

/** Milliseconds for one check: a database that hangs must not hang the doctor. */
const deadlineMs = 30_000

/** Runs a check. That it does not come to its end is a finding too. */
export async function runCheck(
  check: string,
  run: () => Promise<Finding[]>,
  ms = deadlineMs,
): Promise<{ findings: Finding[]; isComplete: boolean }> {
  const { promise: late, resolve } = Promise.withResolvers<'late'>()
  const timer = setTimeout(resolve, ms, 'late')
  try {
    const found = await Promise.race([run(), late])
    if (found !== 'late') return { findings: found, isComplete: true }
    return { findings: [unchecked(check, `there is no answer within ${ms / 1000} s`)], isComplete: false }
  } catch (error) {
    const trouble = classifyDatabaseError(error)
    const why = trouble ? `the database is ${trouble}` : (error as Error).message
    return { findings: [unchecked(check, why, trouble)], isComplete: false }
  } finally {
    clearTimeout(timer)
  }
}

function unchecked(check: string, why: string, trouble?: string): Finding {
  return failed(check, {
    message: `This cannot be checked: ${why}.`,
    reason: 'What it would find stays unknown.',
    remedy:
      trouble === 'damaged'
        ? restoreIt
        : 'see that the database answers, that nothing keeps its tables locked, and that this user may read its files',
  })
}
