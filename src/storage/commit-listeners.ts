import type { TableName } from './schema/tables.ts'
import { anyTable } from './sqlite/statement-cache.ts'

/** Who wants to know that something was committed. */
export class CommitListeners {
  readonly #listeners: { listener: () => void; tables: readonly string[] | undefined }[] = []

  /** `tables`: it does not matter to the listener what was committed to others. */
  listen(listener: () => void, tables?: readonly TableName[]): void {
    this.#listeners.push({ listener, tables })
  }

  /** What was committed stays committed: a listener's failure is only warned about. */
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
