import { statSync } from 'node:fs'
import { SetupError } from '../../src/core/errors.ts'

/** @throws SetupError for root, whose files the user of the service could not open */
export function assertOwnDirectory(dataDir: string): void {
  const owner = statSync(dataDir, { throwIfNoEntry: false })?.uid
  if (process.getuid?.() !== 0 || owner === undefined || owner === 0) return
  throw new SetupError(
    `${dataDir} belongs to user ${owner}: run this as that user, who has to open what is written`,
  )
}
