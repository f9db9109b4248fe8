import { type ChainLine, type Fields, readLine } from './lines.ts'
import type { VerifierFinding } from './verdict.ts'

export type ExpectedEntry = {
  orgId: string | null
  seq: number
  link: string
  /** The file begins here, without an anchor. */
  isFirst: boolean
}

/**
 * Classifies a line that is not the expected entry. The kind of fault can depend on whether that entry comes
 * later, so the rest of the file is searched for it.
 */
export class MismatchClassifier {
  readonly entry: Fields | undefined
  readonly #expected: ExpectedEntry
  readonly #misfit: ChainLine
  readonly #marks: string[]
  #comes = false
  #repeats = false

  constructor(misfit: ChainLine, expected: ExpectedEntry) {
    this.#misfit = misfit
    this.#expected = expected
    this.entry = 'entry' in misfit ? misfit.entry : undefined
    const seqs = [expected.seq, ...(misfit.is === 'entry' ? [misfit.seq] : [])]
    this.#marks = seqs.map((seq) => `"seq":${seq},`)
  }

  /** Whether no later line can change the finding. */
  get isSettled(): boolean {
    const line = this.#misfit
    if (line.is === 'altered') return true
    if (line.is !== 'entry') return this.#comes
    const { orgId, seq } = this.#expected
    if (line.orgId !== orgId || line.seq < seq) return true
    return this.#comes && (line.seq === seq || this.#repeats)
  }

  /** Reads a line that follows. */
  read(line: Buffer): void {
    if (!this.#marks.some((mark) => line.includes(mark))) return
    const later = readLine(line)
    const { orgId, seq, link } = this.#expected
    if (later.is !== 'entry' || later.orgId !== orgId) return
    if (later.seq === seq && later.link === link) this.#comes = true
    else if (this.#misfit.is === 'entry' && later.seq === this.#misfit.seq) this.#repeats = true
  }

  get finding(): VerifierFinding {
    const { orgId, seq: wanted, isFirst } = this.#expected
    const line = this.#misfit
    if (line.is === 'altered') {
      return { kind: 'altered', message: `Entry ${wanted} was altered: its checksum does not match its text` }
    }
    if (line.is !== 'entry') {
      if (this.#comes)
        return { kind: 'inserted', message: `What stands before entry ${wanted} is not of this chain` }
      return {
        kind: 'unreadable',
        message: `The line after entry ${wanted - 1} is neither an entry nor the end`,
      }
    }
    if (line.orgId !== orgId) return { kind: 'foreign', message: `Entry ${wanted} belongs to another chain` }
    const { seq } = line
    if (seq < wanted || (this.#comes && (seq === wanted || this.#repeats))) {
      return {
        kind: 'inserted',
        message: `An entry ${seq} stands before entry ${wanted}, and is one too many`,
      }
    }
    if (seq === wanted)
      return { kind: 'relinked', message: `Entry ${wanted} does not link to the one before it` }
    if (this.#comes)
      return { kind: 'reordered', message: `Entry ${seq} stands where ${wanted} belongs, which comes later` }
    const gap = seq === wanted + 1 ? `Entry ${wanted} is` : `Entries ${wanted} to ${seq - 1} are`
    return isFirst
      ? { kind: 'unanchored', message: `${gap} missing, and no signed anchor stands for what was removed` }
      : { kind: 'missing', message: `${gap} missing` }
  }
}
