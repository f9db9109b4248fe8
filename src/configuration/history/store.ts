import { setImmediate } from 'node:timers/promises'
import type { Selectable } from 'kysely'
import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Page, PageQuery } from '../../core/page.ts'
import { ofOne, type Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { after } from '../../storage/query/expressions.ts'
import { readPage } from '../../storage/query/pages.ts'
import { inScopeHistory, inTenants } from '../../storage/query/scope.ts'
import type { ConfigurationApplyRow } from '../../storage/schema/tables.ts'
import type { Section } from '../contract.ts'
import { type NameChange, ownerId, type SetOwner } from '../store.ts'
import type { AppliedChange } from './applied-changes.ts'
import type { ConfigurationApply } from './contract.ts'

/** Of each tenant. */
const maxApplies = 100
/** Characters of values, of one apply and of all of a tenant: beyond them an apply is listed, and cannot be rolled back. */
const maxApplyCharacters = 8 * 1024 * 1024
const maxTotalCharacters = 64 * 1024 * 1024

/** Changes that are encrypted or opened before other requests get their turn. */
const atOnce = 50

const appliesIn = (db: Db, scope: Scope) =>
  db.selectFrom('config_applies').where(inTenants(scope, 'config_applies'))

type Totals = ConfigurationApply['totals']

const shown = ['id', 'set_name', 'revision', 'applied_at', 'applied_by', 'rolls_back', 'characters'] as const

const toApply = (
  row: Pick<Selectable<ConfigurationApplyRow>, (typeof shown)[number]>,
  counted: Partial<Totals>,
): ConfigurationApply => ({
  id: row.id,
  set: row.set_name,
  revision: row.revision,
  appliedAt: row.applied_at,
  appliedBy: row.applied_by,
  rollsBack: row.rolls_back,
  totals: { create: 0, update: 0, delete: 0, adopt: 0, release: 0, ...counted },
  canRollBack: row.characters > 0,
})

/** Applies of a tenant, newest first, with the changes in sight: of organizations of the scope, and of these sections. */
export async function listApplies(
  db: Db,
  scope: Scope,
  { owner, readable, page }: { owner: SetOwner; readable: readonly Section[]; page: PageQuery },
): Promise<Page<ConfigurationApply>> {
  const applies = appliesIn(db, scope).where('owner', '=', ownerId(owner))
  const listed = await readPage(
    applies,
    page,
    (found) => found.select(shown).orderBy('applied_at', 'desc').orderBy('id', 'desc'),
    (row) => row,
  )
  const totals = new Map(listed.data.map(({ id }) => [id, {} as Partial<Totals>]))
  for (const { apply_id, action, count } of await countChanges(db, scope, [...totals.keys()], readable))
    if (action !== 'end') totals.get(apply_id)![action as keyof Totals] = Number(count)
  return { ...listed, data: listed.data.map((row) => toApply(row, totals.get(row.id)!)) }
}

async function countChanges(db: Db, scope: Scope, ids: readonly string[], readable: readonly Section[]) {
  if (ids.length === 0 || readable.length === 0) return []
  return (
    appliesIn(db, scope)
      .innerJoin('config_changes as c', 'c.apply_id', 'config_applies.id')
      .select(({ fn }) => ['c.apply_id', 'c.action', fn.countAll<number | string>().as('count')])
      .where('config_applies.id', 'in', ids)
      .where('c.section', 'in', readable)
      // Of the partner, to whoever sees the apply; what a deleted organization had stays counted.
      .where((eb) => eb.or([eb('c.org_id', 'is', null), inScopeHistory(scope, 'c.org_id')]))
      .groupBy(['c.apply_id', 'c.action'])
      .execute()
  )
}

/** With the tenant whose set it is of. @throws not_found, also for an apply of another tenant */
export async function getApply(
  db: Db,
  scope: Scope,
  id: string,
): Promise<{ apply: ConfigurationApply; owner: SetOwner; nameChanges: readonly NameChange[] }> {
  const row = await appliesIn(db, ofOne(scope)).selectAll().where('id', '=', id).executeTakeFirst()
  if (!row) throw new Problem('not_found', 'Apply not found: svc config history lists them')
  return {
    apply: toApply(row, {}),
    owner: { partnerId: row.partner_id, orgId: row.org_id },
    nameChanges: JSON.parse(row.names ?? '[]') as NameChange[],
  }
}

const encryptionContextOf = (id: string) => `config_changes.content.${id}` as const

/** What an apply did, in its order. @throws conflict when its values cannot be opened */
export async function changesOf(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  applyId: string,
): Promise<AppliedChange[]> {
  const { applied, isWhole } = await openedChanges(db, cipher, scope, applyId)
  if (isWhole) return applied
  throw new Problem('conflict', 'This apply cannot be rolled back: no key of the service opens its values')
}

async function openedChanges(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  applyId: string,
  action?: 'create',
): Promise<{ applied: AppliedChange[]; isWhole: boolean }> {
  const rows = await db
    .selectFrom('config_changes')
    .select(['id', 'content'])
    .where(
      'apply_id',
      'in',
      appliesIn(db, ofOne(scope)).select('config_applies.id').where('config_applies.id', '=', applyId),
    )
    .where('content', 'is not', null)
    .$if(action !== undefined, (changes) => changes.where('action', '=', action!))
    .orderBy('position')
    .execute()
  const applied: AppliedChange[] = []
  for (const { id, content } of rows) {
    const text = cipher.tryDecrypt(content!, encryptionContextOf(id))
    if (text === undefined) return { applied, isWhole: false }
    applied.push(JSON.parse(text) as AppliedChange)
    if (applied.length % atOnce === 0) await setImmediate()
  }
  return { applied, isWhole: true }
}

/** What later rollbacks of a set have made again, as far as it is kept. */
export async function restoredSince(
  db: Db,
  cipher: Cipher,
  scope: Scope,
  owner: SetOwner,
  { id, set, appliedAt }: Pick<ConfigurationApply, 'id' | 'set' | 'appliedAt'>,
): Promise<AppliedChange[]> {
  const rollbacks = await appliesIn(db, scope)
    .select('id')
    .where('owner', '=', ownerId(owner))
    .where('set_name', '=', set)
    .where('rolls_back', 'is not', null)
    .where(after(['applied_at', 'id'], [appliedAt, id]))
    .orderBy('applied_at')
    .orderBy('id')
    .execute()
  const restored: AppliedChange[] = []
  for (const rollback of rollbacks) {
    restored.push(...(await openedChanges(db, cipher, scope, rollback.id, 'create')).applied)
  }
  return restored
}

export type NewApply = Pick<ConfigurationApply, 'id' | 'set' | 'revision' | 'rollsBack'> & {
  by: string
  now: Instant
}

/** The changes as they are stored; undefined when they exceed the bound of one apply, where it stops. */
async function textsOf(applied: readonly AppliedChange[]): Promise<string[] | undefined> {
  const texts: string[] = []
  let characters = 0
  for (const one of applied) {
    const text = JSON.stringify(one)
    characters += text.length
    if (characters > maxApplyCharacters) return undefined
    texts.push(text)
    if (texts.length % atOnce === 0) await setImmediate()
  }
  return texts
}

/** Keeps an apply with its values, and forgets what is beyond the bounds of the tenant. */
export async function insertApply(
  db: Db,
  cipher: Cipher,
  owner: SetOwner,
  { id, set, revision, rollsBack, by, now }: NewApply,
  { applied, nameChanges }: { applied: readonly AppliedChange[]; nameChanges: readonly NameChange[] },
): Promise<void> {
  const texts = await textsOf(applied)
  const names = texts && JSON.stringify(nameChanges)
  const characters = texts?.reduce((sum, text) => sum + text.length, names!.length) ?? 0
  await db
    .insertInto('config_applies')
    .values({
      id,
      partner_id: owner.partnerId,
      org_id: owner.orgId,
      owner: ownerId(owner),
      set_name: set,
      revision,
      applied_at: now,
      applied_by: by,
      rolls_back: rollsBack,
      characters,
      names,
    })
    .execute()
  for (const [position, { section, action, orgId }] of applied.entries()) {
    const row = newId()
    const content = texts ? cipher.encrypt(texts[position]!, encryptionContextOf(row)) : null
    const about = { section, action, org_id: orgId }
    await db
      .insertInto('config_changes')
      .values({ id: row, apply_id: id, position, ...about, content })
      .execute()
    if (position % atOnce === 0) await setImmediate()
  }
  await forgetOld(db, owner)
}

async function forgetOld(db: Db, owner: SetOwner): Promise<void> {
  const all = await db
    .selectFrom('config_applies')
    .select(['id', 'characters'])
    .where('owner', '=', ownerId(owner))
    .orderBy('applied_at', 'desc')
    .orderBy('id', 'desc')
    .execute()
  let sum = 0
  const [old, large]: [string[], string[]] = [[], []]
  for (const [at, { id, characters }] of all.entries()) {
    sum += characters
    if (at >= maxApplies) old.push(id)
    else if (sum > maxTotalCharacters && characters > 0) large.push(id)
  }
  if (old.length > 0) await db.deleteFrom('config_applies').where('id', 'in', old).execute()
  if (large.length === 0) return
  await db.updateTable('config_changes').set({ content: null }).where('apply_id', 'in', large).execute()
  await db
    .updateTable('config_applies')
    .set({ characters: 0, names: null })
    .where('id', 'in', large)
    .execute()
}

/** What was applied in tenants that are deleted. */
export async function deleteApplies(db: Db, scope: Scope): Promise<void> {
  await db
    .deleteFrom('config_applies')
    .where('id', 'in', appliesIn(db, scope).select('config_applies.id'))
    .execute()
}
