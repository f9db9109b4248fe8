import { type Expression, expressionBuilder, type SqlBool } from 'kysely'
import { Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { IdPage } from '../core/page.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { isUsableApiKey } from '../credentials/api-keys/store.ts'
import { isLiveEnrollmentKey } from '../credentials/enrollment-keys/store.ts'
import { violatedUniqueKey } from '../storage/database-errors.ts'
import { lockName } from '../storage/named-lock.ts'
import type { Db } from '../storage/open.ts'
import { readById } from '../storage/query/pages.ts'
import { inTenants } from '../storage/query/scope.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { type ConfigurationSet, type Section, sections } from './contract.ts'

/** The tenant whose sets they are: an organization, or a partner with all it has. */
export type SetOwner = { partnerId: string; orgId: string | null }

export const ownerId = ({ partnerId, orgId }: SetOwner): string => orgId ?? partnerId

const setsIn = (db: Db, scope: Scope) => db.selectFrom('config_sets').where(inTenants(scope, 'config_sets'))

/**
 * Sets of a tenant, by name. A member with selected organizations of a partner has those that own something of them: names and
 * revisions of the others are of organizations that they do not see.
 */
export async function listSets(db: Db, scope: Scope, owner: SetOwner): Promise<ConfigurationSet[]> {
  const rows = await setsIn(db, scope)
    .where('config_sets.owner', '=', ownerId(owner))
    .leftJoin(
      objectsIn(db, scope)
        .select(['config_objects.set_id', 'config_objects.object_id', 'config_objects.org_id'])
        .as('o'),
      'o.set_id',
      'config_sets.id',
    )
    .select(({ fn }) => [
      'config_sets.name',
      'config_sets.revision',
      'config_sets.applied_at as appliedAt',
      'config_sets.applied_by as appliedBy',
      fn.count<number | string>('o.object_id').as('objects'),
      fn.count<number | string>('o.org_id').as('ofOrgs'),
    ])
    .groupBy(['config_sets.id'])
    .orderBy('config_sets.name')
    .execute()
  const seesPart = scope.kind === 'partner' && scope.orgs !== 'all'
  return rows.flatMap(({ objects, ofOrgs, ...set }) =>
    seesPart && Number(ofOrgs) === 0 ? [] : [{ ...set, objects: Number(objects) }],
  )
}

export async function findSet(
  db: Db,
  scope: Scope,
  owner: SetOwner,
  name: string,
): Promise<string | undefined> {
  const found = setsIn(db, scope)
    .select('config_sets.id')
    .where('config_sets.owner', '=', ownerId(owner))
    .where('config_sets.name', '=', name)
  return (await found.executeTakeFirst())?.id
}

/** Most sets of a tenant. One that owns nothing is forgotten. */
const maxSets = 100

/**
 * The set of this name, made if it is new. No other apply of the tenant goes on until the transaction ends: the second
 * waits, and then finds that the state has moved. An apply of an organization and one of its
 * partner wait for each other; those of two organizations do not.
 * @throws quota_exceeded
 */
export async function beginApply(
  db: Db,
  scope: Scope,
  owner: SetOwner,
  { set: name, by, now }: { set: string; by: string; now: Instant },
): Promise<string> {
  const { partnerId, orgId } = owner
  await lockName(db, `configuration ${partnerId}`, orgId === null ? 'exclusive' : 'shared')
  if (orgId !== null) await lockName(db, `configuration ${orgId}`)
  await db
    .insertInto('config_sets')
    .values({
      id: newId(),
      partner_id: partnerId,
      org_id: orgId,
      owner: ownerId(owner),
      name,
      revision: null,
      applied_at: now,
      applied_by: by,
    })
    .onConflict((conflict) => conflict.columns(['owner', 'name']).doNothing())
    .execute()
  const held = await setsIn(db, scope)
    .select(['config_sets.id', 'config_sets.name'])
    .where('config_sets.owner', '=', ownerId(owner))
    .execute()
  if (held.length > maxSets)
    throw new Problem(
      'quota_exceeded',
      `There are ${maxSets} sets already: svc config sets lists them; one that owns nothing is forgotten`,
    )
  return held.find((set) => set.name === name)!.id
}

/** The set says what it was last changed by: an apply that changes nothing leaves no trace in it. */
export async function noteApplied(
  db: Db,
  scope: Scope,
  id: string,
  { revision, by, now }: { revision: string | null; by: string; now: Instant },
): Promise<void> {
  const inScope = setsIn(db, ofOne(scope)).select('config_sets.id').where('config_sets.id', '=', id)
  await db
    .updateTable('config_sets')
    .set({ revision, applied_at: now, applied_by: by })
    .where('id', 'in', inScope)
    .execute()
}

/** What files have of tenants that are deleted: their sets, and their objects in sets of the partner. */
export async function deleteSets(db: Db, scope: Scope): Promise<void> {
  await db
    .deleteFrom('config_objects')
    .where('object_id', 'in', objectsIn(db, scope).select('object_id'))
    .execute()
  await db.deleteFrom('config_sets').where('id', 'in', setsIn(db, scope).select('config_sets.id')).execute()
}

/** Which set owns an object. */
export type Ownership = {
  set: { id: string; name: string; isOfPartner: boolean }
  orgId: string | null
  /** What its files call it, where they may rename it. */
  name: string | null
  /** What its files called it before, where they have renamed it. */
  renamedFrom: string | null
}

const objectsIn = (db: Db, scope: Scope) =>
  db.selectFrom('config_objects').where(inTenants(scope, 'config_objects'))

/** The owned objects of a section: of every set, so that none is taken from another. */
export async function listOwned(
  db: Db,
  scope: Scope,
  section: Section,
  page: IdPage,
): Promise<{ id: string; ownership: Ownership }[]> {
  const owned = objectsIn(db, scope)
    .innerJoin('config_sets as s', 's.id', 'config_objects.set_id')
    .where('config_objects.section', '=', section)
  const rows = await readById(owned, 'config_objects.object_id', page, (q) =>
    q.select([
      'config_objects.object_id',
      'config_objects.org_id as object_org',
      'config_objects.name',
      'config_objects.renamed_from',
      's.id',
      's.name as set',
      's.org_id',
    ]),
  )
  // Few sets own many objects.
  const sets = new Map<string, Ownership['set']>()
  return rows.map((row) => {
    const { id, set: name, org_id: setOrg } = row
    const set = sets.get(id) ?? { id, name, isOfPartner: setOrg === null }
    sets.set(id, set)
    return {
      id: row.object_id,
      ownership: { set, orgId: row.object_org, name: row.name, renamedFrom: row.renamed_from },
    }
  })
}

/** The caller has made or found the object within its scope. */
export async function own(
  db: Db,
  setId: string,
  object: {
    section: Section
    id: string
    partnerId: string
    orgId: string | null
    name: string | null
    renamedFrom?: string | null | undefined
  },
): Promise<void> {
  const { section, id, partnerId, orgId, name, renamedFrom = null } = object
  await db
    .insertInto('config_objects')
    .values({
      object_id: id,
      set_id: setId,
      section,
      partner_id: partnerId,
      org_id: orgId,
      name,
      renamed_from: renamedFrom,
    })
    .execute()
    .catch((error: unknown) => {
      // A set of the partner and one of its organization may take it over at once.
      throw violatedUniqueKey(error)
        ? new Problem('conflict', 'Another set has just taken it over; plan again')
        : error
    })
}

/** What files call an object, and what they called it before they renamed it. */
export type NameInFiles = { name: string | null; renamedFrom: string | null }
/** What an apply changed of that. `orgId`: where the name means one object; null: in the partner. */
export type NameChange = {
  section: Section
  id: string
  orgId: string | null
  before: NameInFiles
  after: NameInFiles
}

/** The caller has found the object within its scope. */
export async function noteName(db: Db, setId: string, id: string, called: NameInFiles): Promise<void> {
  const { name, renamedFrom } = called
  await db
    .updateTable('config_objects')
    .set({ name, renamed_from: renamedFrom })
    .where('object_id', '=', id)
    .where('set_id', '=', setId)
    .execute()
}

/** Takes a change of names back, unless there was another since; returns whether it did. */
export async function takeNameBack(
  db: Db,
  setId: string,
  { id, before, after }: NameChange,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('config_objects')
    .set({ name: before.name, renamed_from: before.renamedFrom })
    .where('object_id', '=', id)
    .where('set_id', '=', setId)
    .where('name', 'is not distinct from', after.name)
    .where('renamed_from', 'is not distinct from', after.renamedFrom)
    .executeTakeFirst()
  return numUpdatedRows > 0n
}

/** Names by which the files of a set mean several objects of one section and organization. The caller has found the set. */
export async function sharedNames(
  db: Db,
  setId: string,
): Promise<{ section: Section; orgId: string | null; name: string | null }[]> {
  const rows = await db
    .selectFrom('config_objects')
    .select(['section', 'name'])
    .select(({ eb }) =>
      // Organizations have their names in the partner.
      eb.case().when('section', '=', 'organizations').then(null).else(eb.ref('org_id')).end().as('namespace'),
    )
    .where('set_id', '=', setId)
    .where('name', 'is not', null)
    .groupBy(['section', 'namespace', 'name'])
    .having(({ fn }) => fn.countAll(), '>', 1)
    .execute()
  return rows.map(({ section, namespace: orgId, name }) => ({ section: section as Section, orgId, name }))
}

/** The caller has found the object within its scope. */
export async function disown(db: Db, setId: string, id: string): Promise<void> {
  await db.deleteFrom('config_objects').where('object_id', '=', id).where('set_id', '=', setId).execute()
}

const tables = {
  partners: ['partners'],
  organizations: ['organizations'],
  sites: ['sites'],
  roles: ['roles'],
  filters: ['saved_filters'],
  deviceGroups: ['device_groups'],
  scripts: ['scripts'],
  memberships: ['organization_memberships', 'partner_memberships'],
  webhooks: ['webhooks'],
  trustPolicies: ['trust_policies'],
  ssoProviders: ['sso_providers'],
  apiKeys: ['api_keys'],
  enrollmentKeys: ['enrollment_keys'],
} as const satisfies Record<Section, readonly string[]>

/** Deleted records of these stay for a while, with the time. */
const marked: readonly Section[] = ['partners', 'organizations', 'scripts', 'webhooks']

/** Whether an object of such a section is there: what was deleted or has ended may be kept for a while. */
const isThere = (section: Section, now: Instant): Expression<SqlBool> => {
  const eb = expressionBuilder<Tables, 'organizations'>()
  if (section === 'apiKeys') return isUsableApiKey(now)
  if (section === 'enrollmentKeys') return isLiveEnrollmentKey(now)
  return marked.includes(section) ? eb('deleted_at', 'is', null) : eb.lit(true)
}

/** Objects of the sets, of one section, that exist no more. */
const deletedAmong = (db: Db, section: Section, now: Instant) => {
  // The tables have an id in common, which is all that is asked for.
  const among = tables[section] as unknown as readonly 'organizations'[]
  return db
    .selectFrom('config_objects')
    .select('config_objects.object_id')
    .where('section', '=', section)
    .where(({ and, not, exists, selectFrom }) =>
      and(
        among.map((table) =>
          not(
            exists(
              selectFrom(table)
                .select(`${table}.id`)
                .whereRef(`${table}.id`, '=', 'config_objects.object_id')
                .where(isThere(section, now)),
            ),
          ),
        ),
      ),
    )
}

/** Names of other sets of the partner, by the ids of the organizations in which they have something. */
export async function listOtherSets(
  db: Db,
  scope: Scope,
  setId: string | undefined,
  now: Instant,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const sets = new Map<string, Set<string>>()
  for (const section of sections) {
    const found = await objectsIn(db, scope)
      .innerJoin('config_sets as s', 's.id', 'config_objects.set_id')
      .where('config_objects.section', '=', section)
      .where('config_objects.org_id', 'is not', null)
      .where('s.org_id', 'is', null)
      .$if(setId !== undefined, (q) => q.where('s.id', '!=', setId!))
      .where('config_objects.object_id', 'not in', deletedAmong(db, section, now))
      .select(['config_objects.org_id', 's.name'])
      .distinct()
      .execute()
    for (const { org_id: id, name } of found) sets.set(id!, (sets.get(id!) ?? new Set()).add(name))
  }
  return sets
}

/**
 * Forgets what no longer exists, whoever deleted it, and then the sets of the tenant that own nothing: there are never more
 * rows than objects.
 */
export async function forgetDeleted(db: Db, owner: SetOwner, now: Instant): Promise<void> {
  const ofTenant = db.selectFrom('config_sets').select('id').where('owner', '=', ownerId(owner))
  for (const section of sections) {
    await db
      .deleteFrom('config_objects')
      .where('set_id', 'in', ofTenant)
      .where('object_id', 'in', deletedAmong(db, section, now))
      .execute()
  }
  await db
    .deleteFrom('config_sets')
    .where('owner', '=', ownerId(owner))
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('config_objects')
            .select('set_id')
            .whereRef('config_objects.set_id', '=', 'config_sets.id'),
        ),
      ),
    )
    .execute()
}
