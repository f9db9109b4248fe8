import type { AnyDb } from '../columns.ts'
import type { TableShape } from './catalog.ts'
import type { Cell } from './row-pages.ts'

/** What a database holds that is to be restored into. */
export type TargetState = 'empty' | 'unfinished' | 'used'

/** Puts rows in, of any tables in any order: foreign keys are checked when it ends. */
export type RowLoader = {
  /** The one connection that everything here goes through. */
  db: AnyDb
  transaction<T>(work: () => Promise<T>): Promise<T>
  insert(table: TableShape, rows: readonly Cell[][]): Promise<void>
  /** @throws when a row refers to one that is not there */
  end(): Promise<void>
}

/** Keeps in the database itself the statements that put back what a load takes off, so that another process can. */
export type DroppedConstraints = {
  read(db: AnyDb): Promise<string[] | undefined>
  keep(db: AnyDb, statements: readonly string[]): Promise<void>
}

/** What differs between the databases when one is restored. */
export type TargetDriver = {
  /** Changes nothing. */
  state(): Promise<TargetState>
  /** Keeps every other restore and server away; returns how to let them in again. */
  lock(): Promise<() => Promise<void>>
  /** Returns the state once more; unless it is `used`, removes what is left of a restore, and marks the database. */
  begin(): Promise<TargetState>
  /** With `droppedConstraints` rows can also be deleted again, from any table, and another process can go on. */
  load<T>(work: (loader: RowLoader) => Promise<T>, droppedConstraints?: DroppedConstraints): Promise<T>
}
