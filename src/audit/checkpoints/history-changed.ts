import { Problem } from '../../core/errors.ts'

/** What is wrong with a chain that does not contain what was signed of it before. */
export type HistoryChange = {
  chain: string
  /** truncated: shorter than it was · rewritten: other entries than it had · altered: an entry that belies its checksum */
  kind: 'truncated' | 'rewritten' | 'altered'
  /** How many entries were signed. */
  signed: number
  /** How many there are. */
  found: number
  why: string
}

/** The service signs no history that another history of its own contradicts. */
export class HistoryChangedError extends Problem {
  readonly change: HistoryChange

  constructor(change: HistoryChange) {
    const { chain: _, ...told } = change
    super('audit_history_changed', change.why, { details: told })
    this.name = 'ChangedHistory'
    this.change = change
  }
}
