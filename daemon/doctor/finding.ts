import { SetupError } from '../../src/core/errors.ts'
import type { Finding } from '../../src/core/finding.ts'
import { classifyDatabaseError } from '../../src/storage/dialect.ts'

/** What `--fix` does about a finding. */
export type Repair = { check: string; plan: string; run(): Promise<unknown> }

export const passed = (check: string, message: string): Finding => ({
  check,
  state: 'ok',
  message,
  reason: null,
  remedy: null,
})

type Explained = { message: string; reason: string; remedy: string }

export const warning = (check: string, found: Explained): Finding => ({ check, state: 'warning', ...found })
export const failed = (check: string, found: Explained): Finding => ({ check, state: 'error', ...found })

/** `1 webhook`, `2 webhooks` */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`

/** Milliseconds for one check: a database that hangs must not hang the doctor. */
const deadlineMs = 30_000

/** Runs a check; that it cannot be run, or takes too long, is a finding too. */
export async function runCheck(
  check: string,
  run: () => Promise<Finding[]>,
  ms = deadlineMs,
): Promise<Finding[]> {
  const { promise: late, resolve } = Promise.withResolvers<'late'>()
  const timer = setTimeout(resolve, ms, 'late')
  try {
    const found = await Promise.race([run(), late])
    if (found !== 'late') return found
    return [unchecked(check, `there was no answer within ${ms / 1000} s`)]
  } catch (error) {
    const trouble = classifyDatabaseError(error)
    return [unchecked(check, trouble ? `the database is ${trouble}` : (error as Error).message, trouble)]
  } finally {
    clearTimeout(timer)
  }
}

function unchecked(check: string, why: string, trouble?: string): Finding {
  const remedy =
    trouble === 'damaged'
      ? 'stop the service, keep a copy of the damaged files, and restore the database from a backup'
      : 'mend the other findings first, then run svc doctor again'
  return failed(check, {
    message: `This cannot be checked: ${why}`,
    reason: 'Other faults may be hidden.',
    remedy,
  })
}

/** The sentence of a failure that is the user's to mend. */
export const sentenceOf = (error: unknown): string =>
  error instanceof SetupError ? error.message : ((error as Error).message ?? String(error))
