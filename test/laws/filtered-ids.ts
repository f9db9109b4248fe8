import type { Endpoint } from '../../src/core/endpoint.ts'
import { idsOf } from './fields.ts'

/** Lists of IDs from which unknown ones are dropped instead of refused. */
const filteredIds = new Set([
  'body.organizationOrder.0',
  'body.orderedIds.0',
  'body.settings.organizationOrder.0',
])

type Id = { part: string; path: string[] }

export const isFilteredId = ({ part, path }: Id): boolean => filteredIds.has([part, ...path].join('.'))

/** Entries that refuse an unknown ID in at least one place. */
export const refusesIds = (entry: Endpoint): boolean => idsOf(entry).some((id) => !isFilteredId(id))
