import type { TableShape } from './catalog.ts'
import type { Cell } from './row-pages.ts'

/** What a database holds that is to be restored into. */
export type TargetState = 'empty' | 'unfinished' | 'used'

/** Puts rows in, of any tables in any order: foreign keys are checked when it ends. */
export type RowLoader = {
  insert(table: TableShape, rows: readonly Cell[][]): Promise<void>
  /** @throws when a row refers to one that is not there */
  end(): Promise<void>
}

/** What differs between the databases when one is restored. */
export type TargetDriver = {
  /** Changes nothing. */
  state(): Promise<TargetState>
  /** Keeps every other restore and server away; returns how to let them in again. */
  lock(): Promise<() => Promise<void>>
  /** Returns the state once more; unless it is `used`, removes what is left of a restore, and marks the database. */
  begin(): Promise<TargetState>
  load<T>(work: (loader: RowLoader) => Promise<T>): Promise<T>
}
