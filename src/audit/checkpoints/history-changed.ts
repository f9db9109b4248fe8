import { Problem } from '../../core/errors.ts'

/** How a chain contradicts what was signed of it before. */
export type HistoryChange = {
  chain: string
  /**
   * truncated: shorter than it was · rewritten: other entries than it had · altered: an entry that does not
   * match its checksum
   */
  kind: 'truncated' | 'rewritten' | 'altered'
  /** How many entries were signed. */
  signed: number
  /** How many the chain has. */
  found: number
  why: string
}

/** The service never signs a history that contradicts one it signed before. */
export class HistoryChangedError extends Problem {
  readonly change: HistoryChange

  constructor(change: HistoryChange) {
    const { chain: _, ...details } = change
    super('audit_history_changed', change.why, { details })
    this.name = 'HistoryChangedError'
    this.change = change
  }
}
