import type { Endpoint } from '../core/endpoint.ts'
import { orgs } from '../tenancy/contract.ts'
import type { Section } from './contract.ts'
import type { Values } from './rules.ts'

/** How many of each kind end, or have ended, with something. */
export type Counts = Record<string, number>

/** What a change of an object ends for good: it is counted before and after. */
type Ending = {
  /** The fields whose change may end something. */
  fields: readonly string[]
  /** Counts what would end. */
  entry: Endpoint
  counts(reply: Values): Counts
}

const endings: Partial<Record<Section, Ending>> = {
  organizations: {
    fields: ['status'],
    entry: orgs.deletion,
    // Its members and everything else are there again when it is in use again.
    counts: ({ apiKeys, enrollmentKeys }) => ({
      apiKeys: Number(apiKeys),
      enrollmentKeys: Number(enrollmentKeys),
    }),
  },
}

/** undefined: a change of these fields ends nothing. */
export function endingOf(section: Section, fields: readonly string[]): Ending | undefined {
  const ending = endings[section]
  return ending?.fields.some((field) => fields.includes(field)) ? ending : undefined
}

/** What is not there any more; undefined: nothing is missing. */
export function endedBetween(before: Counts, after: Counts): Counts | undefined {
  const ended = Object.entries(before).map(([kind, count]) => [kind, count - (after[kind] ?? 0)] as const)
  const counts = ended.filter(([, count]) => count > 0)
  return counts.length > 0 ? Object.fromEntries(counts) : undefined
}
