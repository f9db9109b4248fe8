import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { CliError } from '../../cli/exit-codes.ts'
import type { InstallStep } from '../../cli/machine-steps.ts'

/** Removes a state directory. @throws CliError unless it has an identity or one of these files */
export function removeStateStep(stateDir: string, others: string[]): InstallStep {
  if (![join(stateDir, 'identity.json'), ...others].some((file) => existsSync(file)))
    throw new CliError(`${stateDir} is not the state directory of an agent`)
  return {
    what: `remove ${stateDir}`,
    // Where a program that was stopped a moment ago still has a file open, Windows refuses to remove it.
    do: () => rmSync(stateDir, { recursive: true, maxRetries: 20, retryDelay: 250 }),
  }
}
