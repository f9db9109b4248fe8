import { SetupError } from '../core/errors.ts'

/** The error of a command that needs an existing database. */
export const noDatabase = (dataDir: string): SetupError =>
  new SetupError(`There is no database in ${dataDir}: name its directory with --data-dir.`)
