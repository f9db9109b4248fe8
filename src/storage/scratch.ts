import { SetupError } from '../core/errors.ts'
import { isDiskFull } from './database-errors.ts'

export type Purpose = 'rehearsal' | 'drill'

/** Room for a copy of a database that is thrown away. */
export type Scratch = {
  /** Of an empty database; undefined on SQLite, where the caller makes a folder. */
  databaseUrl: string | undefined
  /** A disk that is full in words that say what to do; every other failure as it is. */
  explain(error: unknown): unknown
  /** Removes the database, with whatever is connected to it. */
  drop(): Promise<void>
}

export const explainDiskFull =
  (full: string) =>
  (error: unknown): unknown =>
    isDiskFull(error) ? new SetupError(full, { cause: error }) : error
