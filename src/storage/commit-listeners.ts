import type { TableName } from './schema/tables.ts'
import { anyTable } from './sqlite/statement-cache.ts'

/** Calls listeners after commits. */
export class CommitListeners {
  readonly #listeners: { listener: () => void; tables: readonly string[] | undefined }[] = []

  /** `tables`: the listener needs only commits to these. */
  listen(listener: () => void, tables?: readonly TableName[]): void {
    this.#listeners.push({ listener, tables })
  }

  /** The commit is done: a listener that fails only emits a warning. */
  announce(touched: ReadonlySet<string> = all): void {
    for (const { listener, tables } of this.#listeners) {
      if (tables && !touched.has(anyTable) && !tables.some((table) => touched.has(table))) continue
      try {
        listener()
      } catch (error) {
        process.emitWarning(error instanceof Error ? error : String(error))
      }
    }
  }
}

const all: ReadonlySet<string> = new Set([anyTable])
