import { type Fault, Problem } from '../../core/errors.ts'
import { kinds, type Section, sections } from '../contract.ts'
import type { EndingCount } from '../plan-results.ts'
import * as rules from '../rules.ts'
import type { State } from '../state.ts'
import type { AppliedChange } from './applied-changes.ts'

export const timeOf = ({ record }: rules.StoredObject): string =>
  typeof record.updatedAt === 'string' ? ` (${record.updatedAt})` : ''

/**
 * What has come to depend on objects that the rollback deletes: what is in them, or has a reference to them that it does not
 * take back.
 */
export function laterDependents(
  all: readonly AppliedChange[],
  state: State,
  deletions: ReadonlySet<string>,
): string[] {
  if (deletions.size === 0) return []
  const restored = new Set(
    all.flatMap(({ id, before }) => Object.keys(before ?? {}).map((name) => `${id} ${name}`)),
  )
  return sections
    .filter((section) => state.has(section))
    .flatMap((section) => {
      const references = kinds[section].fields.filter(({ refersTo }) => refersTo !== undefined)
      return state
        .all(section)
        .filter(({ id }) => !deletions.has(id))
        .flatMap((one) => {
          const isIn = section !== 'organizations' && one.orgId !== null && deletions.has(one.orgId)
          const refers = references.some(
            ({ name, field }) =>
              [one.record[field]].flat().some((id) => deletions.has(String(id))) &&
              !restored.has(`${one.id} ${name}`),
          )
          if (!isIn && !refers) return []
          const org = state.org(one)
          return [
            `${section} "${one.key}"${org === null ? '' : ` of ${org}`} depends on what it made${timeOf(one)}`,
          ]
        })
    })
}

/** What a deletion calls the objects of a section that it ends, where that is another word. */
export const endedAs: Partial<Record<Section, string>> = { memberships: 'members' }

/**
 * What ends with what a rollback deletes has come after the apply; but for what the apply made, which ends in these sections.
 * Whoever may not see what a deletion ends is refused the deletion, and not told.
 */
export function endedRecords(ends: readonly EndingCount[], ofApply: readonly Section[]): string[] {
  const counts = new Map<string, number>()
  for (const section of ofApply) {
    const what = endedAs[section] ?? section
    counts.set(what, (counts.get(what) ?? 0) - 1)
  }
  const visible = ends.filter(({ isVisible, comesAgain }) => isVisible && !comesAgain)
  for (const [what, count] of visible.flatMap((one) => Object.entries(one.counts)))
    counts.set(what, (counts.get(what) ?? 0) + count)
  return [...counts]
    .filter(([, count]) => count > 0)
    .map(([what, count]) => `${count} ${what} would end with it`)
}

const maxNamed = 10

/** @throws conflict with what stands in the way of a rollback, if anything does */
export function checkNoConflicts(conflicts: readonly string[], unseen = 0): void {
  const hidden =
    unseen === 0
      ? []
      : [`${unseen} of its changes are of organizations that are deleted or that you do not see`]
  const all = [...hidden, ...conflicts]
  if (all.length > 0) throw refusal(', as later changes stand on it', all)
}

/** What bounds every plan, and is not about an object. */
const boundPaths = ['body.document', 'body.pruneLimit']

/**
 * There is no file whose fault it could be that an object cannot be as it was.
 * @throws conflict for that, and for a bound what a plan of files throws
 */
export function checkNoFaults(faults: readonly Fault[]): void {
  const ofObjects = faults.filter(({ path }) => !boundPaths.includes(path))
  if (ofObjects.length > 0) throw refusal('', [...new Set(ofObjects.map(faultText))])
  rules.checkNoFaults(faults)
}

/** Without the number of an object, which nobody has written. */
function faultText({ path, message }: Fault): string {
  const [, , section, , ...field] = path.split('.')
  return field.length === 0 ? message : `${section} ${field.join('.')}: ${message}`
}

function refusal(why: string, reasons: readonly string[]): Problem {
  const more = reasons.length > maxNamed ? [`and ${reasons.length - maxNamed} more`] : []
  const named = [...reasons.slice(0, maxNamed), ...more].join('; ')
  return new Problem('conflict', `This apply cannot be rolled back${why}: ${named}`)
}
