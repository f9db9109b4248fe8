import { SetupError } from '../core/errors.ts'

/** The refusal of a command that works on a database there is. */
export const noDatabase = (dataDir: string): SetupError =>
  new SetupError(`There is no database in ${dataDir}: name its directory with --data-dir.`)
