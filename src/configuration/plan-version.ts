import { createHash, hash } from 'node:crypto'
import type { Change, Section } from './contract.ts'
import { type ConfigurationRequest, canonical } from './rules.ts'

/** Of the state that a plan read; `ofSections`: in the order of the sections that its files name. */
export type StateMark = { whole: string; ofSections: readonly string[] }

/** What a plan is of. An apply is refused when any of it has moved, and says which. */
type VersionParts = {
  state: StateMark
  /** Of what was asked for and would be done (digestOf). */
  digest: string
  /** Of what ends with the changes. */
  ends: string
  /** Of what the files refer to. */
  referred: string
}

const wholeLength = 32
/** Enough to say where to look: the digest decides. */
const partLength = 4

/** The mark of the state comes first, so that an apply may be refused before it changes anything. */
export function versionOf({ state, digest, ends, referred }: VersionParts): string {
  const parts = [...state.ofSections, ends, referred].map((part) => part.slice(0, partLength))
  return [state.whole.slice(0, wholeLength), digest.slice(0, wholeLength), ...parts].join('')
}

export const isOfState = (version: string, state: StateMark): boolean =>
  version.startsWith(state.whole.slice(0, wholeLength))

/** Of the marks of the objects of a section, in any order. */
export const sectionMarkOf = (marks: string[]): string => hash('sha256', marks.sort().join(''), 'hex')

export const stateMarkOf = (ofSections: readonly string[]): StateMark => ({
  whole: hash('sha256', ofSections.join(''), 'hex'),
  ofSections,
})

/** The sections whose objects have moved; none where the version is of other sections. */
export function movedSections(version: string, named: readonly Section[], state: StateMark): Section[] {
  if (!isOfSections(version, named)) return []
  return named.filter((_, at) => partAt(version, at) !== state.ofSections[at]!.slice(0, partLength))
}

/** What else has moved, in words. */
export function movedBesides(
  version: string,
  named: readonly Section[],
  { ends, referred }: Pick<VersionParts, 'ends' | 'referred'>,
): string[] {
  if (!isOfSections(version, named)) return []
  return [
    ...(partAt(version, named.length) === ends.slice(0, partLength) ? [] : ['what ends with the changes']),
    ...(partAt(version, named.length + 1) === referred.slice(0, partLength)
      ? []
      : ['what the files refer to']),
  ]
}

const isOfSections = (version: string, named: readonly Section[]): boolean =>
  version.length === 2 * wholeLength + (named.length + 2) * partLength

const partAt = (version: string, at: number): string =>
  version.slice(2 * wholeLength + at * partLength, 2 * wholeLength + (at + 1) * partLength)

/**
 * Of what a plan was asked for and would do. It holds an apply to that, also where the state of the sections is the same: an
 * object that was made again, more that ends with a deletion, other files. What is refused to whom does not matter. `marks`: of
 * what ends, and of what the files refer to.
 */
export async function digestOf(
  { set, document, adopt, prune, pruneLimit, withoutSecrets = [] }: ConfigurationRequest,
  changes: readonly Change[],
  marks: readonly string[],
  on: {
    /** Of the service: the document has secrets, which nobody is to guess by what is printed. */
    fingerprint: (text: string) => string
    /** Called between the parts, which may be long together. */
    yieldIfDue: () => Promise<void>
  },
): Promise<string> {
  const digest = createHash('sha256')
  const add = (part: unknown) => digest.update(`${canonical(part)}\n`)
  // What went without a secret is of no apply: that has all of them.
  add([set, adopt, prune, pruneLimit ?? null, withoutSecrets, ...marks])
  for (const section of Object.keys(document).sort()) {
    add(section)
    for (const object of document[section]!) {
      add(object)
      await on.yieldIfDue()
    }
  }
  // In one order: what waits for another change, and so comes after it, waits for nothing where it is refused untried.
  const lines: string[] = []
  for (const { section, action, org, id, name, before, after, renamedFrom } of changes) {
    // What is made has another id each time.
    const meant = action === 'create' || action === 'update' ? null : id
    lines.push(
      hash('sha256', canonical([section, action, org, name, before, after, renamedFrom, meant]), 'hex'),
    )
    await on.yieldIfDue()
  }
  add(lines.sort())
  return on.fingerprint(digest.digest('hex')).slice(0, 32)
}
