import type { Endpoint } from '../../src/core/endpoint.ts'
import { idsOf } from './fields.ts'

/** Lists of ids where those that mean nothing to the caller are dropped rather than refused. */
const filteredIds = new Set([
  'body.organizationOrder.0',
  'body.orderedIds.0',
  'body.settings.organizationOrder.0',
])

type Id = { part: string; path: string[] }

export const isFilteredId = ({ part, path }: Id): boolean => filteredIds.has([part, ...path].join('.'))

/** Entries that refuse an id, because there is a place for one where it has to mean something. */
export const refusesIds = (entry: Endpoint): boolean => idsOf(entry).some((id) => !isFilteredId(id))
