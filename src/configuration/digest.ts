import { createHash, hash } from 'node:crypto'
import type { Change } from './contract.ts'
import { type ConfigurationRequest, canonical } from './rules.ts'

/**
 * Of what a plan was asked for and would do. It holds an apply to that, also where the state of the sections is the same: an
 * object that was made again, more that ends with a deletion, other files. What is refused to whom does not matter.
 */
export async function digestOf(
  { set, document, adopt, prune, pruneLimit, withoutSecrets = [] }: ConfigurationRequest,
  changes: readonly Change[],
  { ends, meant }: { ends: readonly [of: string, counts: Record<string, number>][]; meant: unknown },
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
  add([set, adopt, prune, pruneLimit ?? null, ends.map(canonical).sort(), withoutSecrets, meant])
  for (const section of Object.keys(document).sort()) {
    add(section)
    for (const object of document[section]!) {
      add(object)
      await on.yieldIfDue()
    }
  }
  // In one order: what waits for another change, and so comes after it, waits for nothing where it is refused untried.
  const marks: string[] = []
  for (const { section, action, org, id, name, before, after, renamedFrom } of changes) {
    // What is made has another id each time.
    const meant = action === 'create' || action === 'update' ? null : id
    marks.push(
      hash('sha256', canonical([section, action, org, name, before, after, renamedFrom, meant]), 'hex'),
    )
    await on.yieldIfDue()
  }
  add(marks.sort())
  return on.fingerprint(digest.digest('hex')).slice(0, 32)
}
