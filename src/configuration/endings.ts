import type { Endpoint } from '../core/endpoint.ts'
import { orgs } from '../tenancy/contract.ts'
import { kinds, type Section } from './contract.ts'
import type { Values } from './rules.ts'

/** How many of each kind end, or have ended, with something. */
export type Counts = Record<string, number>

/** What a change of an object ends for good: it is counted before and after. */
type EndingChange = {
  /** The fields whose change may end something. */
  fields: readonly string[]
  /** Counts what would end. */
  entry: Endpoint
  counts(reply: Values): Counts
  /** What has come since an apply may end with its rollback: it comes again by itself. */
  comesAgain?: boolean
}

const endings: Partial<Record<Section, EndingChange>> = {
  organizations: {
    fields: ['status'],
    entry: orgs.deletion,
    // Its members and everything else are there again when it is in use again.
    counts: ({ apiKeys, enrollmentKeys }) => ({
      apiKeys: Number(apiKeys),
      enrollmentKeys: Number(enrollmentKeys),
    }),
  },
  ssoProviders: {
    // Another issuer has other subjects. A preset may decide it.
    fields: ['type', 'preset', 'issuer', 'entityId'],
    ...kinds.ssoProviders.ends!,
    comesAgain: true,
  },
}

/** undefined: a change of these fields ends nothing. */
export function endingOf(section: Section, fields: readonly string[]): EndingChange | undefined {
  const ending = endings[section]
  return ending?.fields.some((field) => fields.includes(field)) ? ending : undefined
}

/** What is not there any more; undefined: nothing is missing. */
export function endedBetween(before: Counts, after: Counts): Counts | undefined {
  const ended = Object.entries(before).map(([kind, count]) => [kind, count - (after[kind] ?? 0)] as const)
  const counts = ended.filter(([, count]) => count > 0)
  return counts.length > 0 ? Object.fromEntries(counts) : undefined
}
