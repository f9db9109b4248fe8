import { expressionBuilder } from 'kysely'
import { isNarrowed, type Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { inGroups, inScope, inSites } from '../storage/query/scope.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { type RankedSearch, rankedIds } from '../storage/search/ranking.ts'
import type { SearchResult } from './contract.ts'
import { deviceResult } from './rules.ts'

// Needles are folded (src/core/fold.ts). Records outside the scope are not found, and do not slow down a search.

export async function findDevices(db: Db, scope: Scope, needle: string, max: number) {
  const eb = expressionBuilder<Tables, 'devices'>()
  const where = eb.and([
    inScope(scope, 'devices.org_id'),
    inSites(scope, 'devices.site_id'),
    inGroups(scope, 'devices.id'),
  ])
  const ranked: RankedSearch = {
    table: 'devices',
    title: ['display_name_key', 'hostname_key'],
    where,
    ...spanOf(scope),
  }
  return loadInOrder(await rankedIds(db, ranked, needle, max), async (ids) => {
    const rows = await db
      .selectFrom('devices')
      .select(['id', 'hostname', 'display_name', 'status', 'last_user'])
      .where(where)
      .where('id', 'in', ids)
      .execute()
    return rows.map(deviceResult)
  })
}

/** An organization sees its own scripts, those of its partner and those of the service. */
export async function findScripts(db: Db, scope: Scope, needle: string, max: number) {
  const eb = expressionBuilder<Tables, 'scripts'>()
  const partners =
    scope.kind === 'partner'
      ? eb('scripts.partner_id', '=', scope.partnerId)
      : eb(
          'scripts.partner_id',
          'in',
          eb
            .selectFrom('organizations')
            .select('organizations.partner_id')
            .where(inScope(scope, 'organizations.id')),
        )
  const where = eb.and([
    eb('scripts.deleted_at', 'is', null),
    eb.or([
      inScope(scope, 'scripts.org_id'),
      eb.and([eb('scripts.org_id', 'is', null), partners]),
      eb.and([eb('scripts.org_id', 'is', null), eb('scripts.partner_id', 'is', null)]),
    ]),
  ])
  const ranked: RankedSearch = {
    table: 'scripts',
    title: ['name_key'],
    besides: 'description_key',
    where,
    ...spanOf(scope),
  }
  return loadInOrder(await rankedIds(db, ranked, needle, max), async (ids) => {
    const rows = await db
      .selectFrom('scripts')
      .select(['id', 'name', 'description'])
      .where(where)
      .where('id', 'in', ids)
      .execute()
    return rows.map(({ id, name, description }): SearchResult => {
      return { id, type: 'scripts', title: name, ...(description && { description }) }
    })
  })
}

/**
 * An alert about a device is visible where the device is; one without a device is not visible to restricted members.
 */
export async function findAlerts(db: Db, scope: Scope, needle: string, max: number) {
  const eb = expressionBuilder<Tables, 'alerts'>()
  const devices = eb
    .selectFrom('devices')
    .select('devices.id')
    .where(inSites(scope, 'devices.site_id'))
    .where(inGroups(scope, 'devices.id'))
  const where = eb.and([
    inScope(scope, 'alerts.org_id'),
    ...(isNarrowed(scope) ? [eb('alerts.device_id', 'in', devices)] : []),
  ])
  const ranked: RankedSearch = {
    table: 'alerts',
    title: ['title_key'],
    besides: 'message_key',
    where,
    ...spanOf(scope),
  }
  return loadInOrder(await rankedIds(db, ranked, needle, max), async (ids) => {
    const rows = await db
      .selectFrom('alerts')
      .select(['id', 'title', 'severity'])
      .where(where)
      .where('id', 'in', ids)
      .execute()
    return rows.map(({ id, title, severity }): SearchResult => {
      return { id, type: 'alerts', title, description: severity }
    })
  })
}

const spanOf = (scope: Scope) => ({ whole: scope.kind === 'system' })

/** The records of these ids, in the order of the ids; records deleted meanwhile are left out. */
async function loadInOrder(
  ids: string[],
  load: (ids: string[]) => Promise<SearchResult[]>,
): Promise<SearchResult[]> {
  if (ids.length === 0) return []
  const found = new Map((await load(ids)).map((one) => [one.id, one]))
  return ids.flatMap((id) => found.get(id) ?? [])
}
